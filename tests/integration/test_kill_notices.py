"""Kill -9 while tenants are written to: no notice is sent twice, none is forgotten, and what nobody knows is asked."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from celery import Celery

from billing.emails import delivery
from billing.models import Invoice, Notice, NoticeState
from billing.queries import review_items
from portal.core.outbox import outbox
from portal.dev.embedded.redis import Redis
from portal.env import broker
from tests.builders import a_cluster, a_job, a_plan, a_seller, a_tenant, ingest
from tests.fakes.mail import Counting, counting
from tests.integration.operators import Operator
from tests.integration.test_outbox_worker import eventually, kill, worker
from tests.stories import close

pytestmark = pytest.mark.usefixtures("transactional_db")

LABS = 12
KILLS = 5
COMMANDS = ("EHLO", "MAIL", "RCPT", "DATA", "TEXT", "TEXT", "TEXT")
"""At which of them a process is killed. TEXT thrice: there it matters most."""
SEEDS = (*range(5), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(5, 100)))


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counting]:
    """It takes three mails a connection."""
    with counting(most=3) as mail_server:
        monkeypatch.setenv("EMAIL_URL", mail_server.url)
        yield mail_server


class Killer:
    """Kills a process when the mail server hears its nth command of a kind, or after a while."""

    def __init__(self, server: Counting, dice: random.Random) -> None:
        self.server, self.dice = server, dice
        self.server.on_command = self._on_command
        self.victim = 0
        self.command, self.left, self.loses = "", 0, False

    def kills_one_that_posts(self, op: Operator) -> bool:
        """Whether it was killed before it was done."""
        self.victim = 0
        self.command = self.dice.choice(COMMANDS)
        self.left = self.dice.randint(1, 3)
        self.loses = self.dice.random() < 0.5
        self.victim = op.begins("task", "billing.tasks.send_notices")
        return op.ends() == -signal.SIGKILL

    def kills_one_that_writes(self, op: Operator) -> bool:
        pid = op.begins("task", "billing.tasks.dun")
        time.sleep(self.dice.uniform(0, 0.3))
        if Path(f"/proc/{pid}").exists():
            os.kill(pid, signal.SIGKILL)
        return op.ends() == -signal.SIGKILL

    def _on_command(self, command: str) -> bool:
        if command != self.command:
            return True
        self.left -= 1
        if self.left:
            return True
        while not self.victim:
            time.sleep(0.001)
        time.sleep(self.dice.uniform(0, 0.002))
        os.kill(self.victim, signal.SIGKILL)
        time.sleep(0.02)  # it is dead before it could be answered
        return not self.loses


@pytest.mark.parametrize("seed", SEEDS)
def test_killed_at_any_moment_each_invoice_is_emailed_once_or_somebody_is_asked(
    seed: int, database_url: str, server: Counting
) -> None:
    labs_that_owe(issued=datetime.now(UTC))
    letters = Notice.objects.filter(kind="invoice")
    killer = Killer(server, random.Random(seed))
    killed = 0
    with Operator(database_url) as op:
        outbox.drain()
        for _ in range(KILLS):
            killed += killer.kills_one_that_posts(op)
        killer.command = ""
        op.does("task", "billing.tasks.send_notices")
    states = Counter(letters.values_list("state", flat=True))
    assert (sum(states.values()), set(states) <= {"sent", "sending"}) == (LABS, True)
    assert states["sending"] <= killed
    assert max(Counter(server.ids).values()) == 1
    sent = {str(pk) for pk in letters.filter(state=NoticeState.SENT).values_list("pk", flat=True)}
    assert sent <= {name.removeprefix("<notice-").partition(".")[0] for name in server.ids}
    assert all(len(list(mail.iter_attachments())) >= 1 for mail in server.mails)


@pytest.mark.parametrize("seed", SEEDS)
def test_case_089_killed_at_any_moment_each_letter_is_sent_once_or_somebody_is_asked(
    seed: int, database_url: str, server: Counting
) -> None:
    labs_that_owe()
    killer = Killer(server, random.Random(seed))
    killed = written = 0
    with Operator(database_url) as op:
        for _ in range(2):
            written += killer.kills_one_that_writes(op)
        op.does("task", "billing.tasks.dun")
        for _ in range(KILLS):
            killed += killer.kills_one_that_posts(op)
            op.does("task", "billing.tasks.dun")
        killer.command = ""
        op.does("task", "billing.tasks.send_notices")
    assert killed >= 2
    assert_sent_or_in_review(server, killed)


def test_a_worker_that_is_killed_while_a_letter_is_on_its_way_does_not_send_it_again(
    database_url: str, server: Counting, tmp_path: Path
) -> None:
    labs_that_owe()
    log, hangs = tmp_path / "worker.log", tmp_path / "hangs"

    def third_mail_hangs(command: str) -> bool:
        if command == "TEXT" and server.accepted == 2:
            server.ids.append("a place for the third")
            hangs.touch()
            time.sleep(5)
            return False
        return True

    server.on_command = third_mail_hangs
    with Redis(tmp_path) as redis:
        environ = os.environ | {
            "DJANGO_SETTINGS_MODULE": "portal.settings",
            "CLUSTERTAB_HOME": str(tmp_path),
            "DATABASE_URL": database_url,
            "REDIS_URL": redis.url(),
        }
        beat = Celery(broker=broker(redis.url()))
        with worker(environ, log) as first:
            beat.send_task("billing.tasks.dun", queue="mail")
            eventually(lambda: Notice.objects.filter(state=NoticeState.WAITING).count() == LABS, log)
            beat.send_task("billing.tasks.send_notices", queue="mail")
            eventually(hangs.exists, log)
            kill(first)
        server.on_command = lambda command: True
        server.ids.remove("a place for the third")
        assert (Notice.objects.filter(state=NoticeState.SENDING).count(), server.accepted) == (1, 2)
        with worker(environ, log):
            beat.send_task("billing.tasks.dun", queue="mail")
            beat.send_task("billing.tasks.send_notices", queue="mail")
            eventually(lambda: not Notice.objects.filter(state=NoticeState.WAITING).exists(), log)
            eventually(lambda: server.accepted == LABS - 1, log)
            # what the server has taken is marked as sent a moment later
            eventually(lambda: Notice.objects.filter(state=NoticeState.SENDING).count() <= 1, log)
    assert_sent_or_in_review(server, 1)


def labs_that_owe(*, issued: datetime | None = None) -> None:
    """Twelve labs, each with an invoice of March that is long past due, or was issued just now: one notice each."""
    cluster, plan = a_cluster(), a_plan()
    a_seller()
    names = [f"lab-{number:02d}" for number in range(LABS)]
    for name in names:
        a_tenant(name, plan=plan, accounts=[(cluster, name)], email=f"bills@{name}.example")
    ingest(cluster, *(a_job(account=name, gpus=4) for name in names), as_of="2026-04-20")
    close("2026-03", on=f"{issued:%Y-%m-%d}" if issued else "2026-04-01")
    if issued is None:
        Notice.objects.all().delete()  # documents of long ago are not sent


def assert_sent_or_in_review(server: Counting, killed: int) -> None:
    """One notice for each invoice; a killed process leaves one at most of which nobody knows."""
    letters = Notice.objects.exclude(state=NoticeState.SKIPPED)
    assert sorted(letters.values_list("invoice", flat=True)) == sorted(
        Invoice.objects.values_list("pk", flat=True)
    )
    states = Counter(letters.values_list("state", flat=True))
    assert set(states) <= {"sent", "sending"}
    assert states["sending"] <= killed
    assert max(Counter(server.ids).values()) == 1

    arrived = {name.removeprefix("<notice-").partition(".")[0] for name in server.ids}
    sent = {str(pk) for pk in letters.filter(state=NoticeState.SENT).values_list("pk", flat=True)}
    unknown = list(letters.filter(state=NoticeState.SENDING))
    assert sent <= arrived <= sent | {str(row.pk) for row in unknown}

    later = datetime.now(UTC) + timedelta(minutes=11)
    looks = [item.sentence for item in review_items.list_review_items(moment=later) if item.what == "E-mail"]
    why = "Reminder: No answer from the mail server: the e-mail may have arrived."
    assert looks == [why] * len(unknown)
    for row in unknown:
        delivery.resend_notice(notice=row, moment=later)
    assert letters.filter(state=NoticeState.WAITING).count() == len(unknown)
