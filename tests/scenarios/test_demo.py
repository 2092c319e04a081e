"""The demonstration: made up, but nothing in it is impossible, and it never touches what is real."""

from __future__ import annotations

import dataclasses
import stat
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import date, datetime
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.db.models import F

from billing.bank_transfers import suggestions
from billing.invoicing import month_close
from billing.invoicing.close_results import Outcome
from billing.models import (
    AutomaticTopUp,
    DocumentKind,
    Invoice,
    InvoiceDocument,
    Notice,
    Payment,
    PaymentDispute,
    Quota,
    SuspendedAccount,
    Suspension,
    TopUp,
    Transfer,
    Wallet,
)
from billing.queries import review_items
from billing.quotas.status import load_statuses
from billing.receivables import settlement
from billing.reports import operator_home
from clusters import validation
from clusters.connectors.base import BusyHour, Row, UsageFact
from clusters.models import Cluster, DeclaredNode, Quarantined, UsageRecord, UtilisationHour
from portal.core.outbox import outbox
from portal.core.tenants.models import Tenant, User
from portal.dev.demo.home import constant_port
from portal.dev.demo_data import rows, seeding, year
from portal.dev.demo_data.cast import ATLAS, HELIX, NIMBUS_GPUS
from portal.dev.demo_data.generator import atlas, helix
from portal.dev.demo_data.kubernetes import nimbus
from tests import builders
from tests.builders import at
from tests.en16931 import XRECHNUNG, holds
from tests.scenarios.configuring import run

JULY = int(at("2026-07-01").timestamp())
END_OF_AUGUST = int(at("2026-08-31 15:40").timestamp())


def facts(rows: Iterable[object]) -> list[UsageFact]:
    return [
        row
        for row in rows
        if isinstance(row, UsageFact) and validation.refuse(row, now=END_OF_AUGUST) is None
    ]


@pytest.fixture(scope="module")
def slurm() -> list[UsageFact]:
    return facts(atlas(seed=2, since=JULY, until=END_OF_AUGUST))


@pytest.fixture(scope="module")
def european() -> list[UsageFact]:
    return facts(helix(seed=1, since=JULY, until=END_OF_AUGUST))


@pytest.fixture(scope="module")
def kubernetes() -> list[UsageFact]:
    return facts(nimbus(seed=1, since=JULY, until=END_OF_AUGUST))


def most_at_once(runs: Iterable[UsageFact], count: dict[str, int]) -> None:
    """Adds up what starts and ends, and fails as soon as more is held than `count` says there is."""
    events: list[tuple[int, int, str]] = []
    for job in runs:
        if job.started is None:
            continue
        kind = job.mig_profile if "" in count else job.gpu_model
        events.append((job.started, job.gpus, kind))
        events.append((job.ended or job.seen_until or 0, -job.gpus, kind))
    usage: dict[str, int] = defaultdict(int)
    for _, gpus, kind in sorted(events):  # what ends at a moment makes room for what starts then
        usage[kind] += gpus
        assert usage[kind] <= count[kind], f"{usage[kind]} of {kind}"


def test_the_same_moment_gives_the_same_rows_and_another_seed_others() -> None:
    def rows(seed: int) -> list[object]:
        return [
            *atlas(seed=seed, since=JULY, until=END_OF_AUGUST),
            *helix(seed=seed, since=JULY, until=END_OF_AUGUST),
            *nimbus(seed=seed, since=JULY, until=END_OF_AUGUST),
        ]

    assert rows(1) == rows(1)
    assert rows(1) != rows(2)


def test_a_process_of_its_own_makes_the_same_rows() -> None:
    moment = at("2026-03-09 12:00")
    with rows.made_apart("nimbus", moment) as made:
        assert list(made) == list(rows.make("nimbus", moment))


def test_one_that_ends_badly_is_no_end_of_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "sys", SimpleNamespace(executable="false"))
    with (
        pytest.raises(subprocess.CalledProcessError),
        rows.made_apart("nimbus", at("2026-03-09 12:00")) as made,
    ):
        list(made)


def test_two_months_are_six_to_twelve_thousand_jobs(
    slurm: list[UsageFact], european: list[UsageFact], kubernetes: list[UsageFact]
) -> None:
    assert 6_000 < len(slurm) + len(european) + len(kubernetes) < 12_000
    assert len({fact.source_key for fact in slurm}) == len(slurm)


def test_no_model_is_ever_used_beyond_what_the_cluster_has(
    slurm: list[UsageFact], european: list[UsageFact], kubernetes: list[UsageFact]
) -> None:
    for jobs, machines in (slurm, ATLAS), (european, HELIX):
        most_at_once((f for f in jobs if f.gpus), {m.model: m.count * m.gpus for m in machines if m.gpus})
    most_at_once(kubernetes, NIMBUS_GPUS)


def test_the_machines_are_busy_but_not_all_the_time(
    slurm: list[UsageFact], european: list[UsageFact]
) -> None:
    for machine in (*ATLAS, HELIX[0]):
        used = sum(
            fact.gpus * ((fact.ended or END_OF_AUGUST) - fact.started)
            for fact in (*slurm, *european)
            if fact.gpu_model == machine.model and fact.started is not None
        )
        share = Fraction(used, machine.count * machine.gpus * (END_OF_AUGUST - JULY))
        assert Fraction(4, 10) < share < Fraction(9, 10), machine.model


def test_it_has_what_real_accounting_has(
    slurm: list[UsageFact], european: list[UsageFact], kubernetes: list[UsageFact]
) -> None:
    states = Counter(fact.state for fact in slurm)
    assert {
        "COMPLETED",
        "FAILED",
        "CANCELLED",
        "TIMEOUT",
        "PREEMPTED",
        "NODE_FAIL",
        "RUNNING",
        "PENDING",
    } == set(states)
    assert states["COMPLETED"] > len(slurm) * 7 // 10
    assert {fact.queue for fact in slurm} == {"gpu", "interactive"}
    assert {fact.queue for fact in european} == {"gpu", "cpu"}
    assert {fact.qos for fact in slurm} == {"normal", "preemptible"}
    assert any("_" in fact.job_id for fact in slurm), "arrays"
    assert all(fact.started is None for fact in slurm if fact.state == "PENDING")
    assert all(fact.seen_until == END_OF_AUGUST for fact in slurm if fact.state == "RUNNING")
    slices = {(fact.mig_profile, fact.gpu_share) for fact in kubernetes}
    assert slices == {("", (1, 1)), ("1g.5gb", (1, 7)), ("3g.20gb", (3, 7))}
    week = 7 * 86_400
    assert any((f.ended or END_OF_AUGUST) - (f.started or 0) > week for f in kubernetes), (
        "services run for weeks"
    )


def test_people_work_by_day_and_less_at_weekends(european: list[UsageFact]) -> None:
    office = [fact for fact in european if fact.account == "cryo-em"]
    days = Counter((fact.submitted or 0) // 86_400 for fact in office)
    weekend = sum(count for day, count in days.items() if (day + 3) % 7 >= 5)
    by_day = sum(1 for fact in office if 8 <= (fact.submitted or 0) // 3600 % 24 < 19)
    assert weekend * 5 < len(office)
    assert by_day * 4 > len(office) * 3


def test_two_rows_cannot_be_true() -> None:
    rows = list(atlas(seed=1, since=JULY, until=END_OF_AUGUST))
    bad = [
        row
        for row in rows
        if not isinstance(row, UsageFact) or validation.refuse(row, now=END_OF_AUGUST) is not None
    ]
    assert len(bad) == 2


def _pay_at_the_sandbox(settings: Any, home: Path) -> None:
    settings.ENV = dataclasses.replace(settings.ENV, home=home)
    settings.PORTAL_URL = "https://portal.example"
    settings.STRIPE_SECRET_KEY = "sk_test_sandbox"
    settings.STRIPE_API_BASE = f"http://127.0.0.1:{constant_port(home / 'port')}"


def _one_payment_is_disputed(moment: datetime) -> None:
    dispute = PaymentDispute.objects.select_related("attempt__invoice__tenant").get()
    disputed = dispute.attempt.invoice
    assert disputed is not None
    assert (disputed.tenant.slug, dispute.state, dispute.amount) == ("lakeside", "open", disputed.total)
    balance = settlement.load_balance(invoice=disputed, on=moment.date())
    assert balance.settlement.value == "disputed"
    assert SuspendedAccount.objects.get().state == "blocked"
    (review,) = review_items.list_review_items(moment=moment)
    assert review.what == "Dispute"


def _each_model_has_a_margin(moment: datetime) -> None:
    margins = {
        (row.cluster, row.gpu_model): row.margin
        for row in operator_home.earned(moment=moment)
        if row.capacity
    }
    assert set(margins) == {
        ("atlas", "h100"), ("atlas", "a100"), ("atlas", "l40s"), ("helix", "a40"), ("nimbus", "a100"),
    }  # fmt: skip
    assert None not in margins.values()


def _no_email_contradicts_what_it_is_about() -> None:
    """Invoices are sent on the day of issue, receipts once the money is there, reminders after the due date."""
    days: dict[str, list[tuple[date, date | None, date, Any]]] = defaultdict(list)
    for notice in Notice.objects.select_related("invoice").order_by("pk"):
        invoice = notice.invoice
        if invoice is not None and invoice.due_on and notice.sent_at:
            day = notice.sent_at.date()
            days[notice.kind].append((day, invoice.issued_on, invoice.due_on, notice.details.get("payment")))
    assert {kind: len(rows) for kind, rows in days.items()} == {
        "invoice": 43, "receipt": 39, "reminder": 6, "credit-note": 1, "suspended": 1,
    }  # fmt: skip
    assert [row for row in days["invoice"] if row[0] != row[1]] == []
    assert [row for kind in ("reminder", "suspended") for row in days[kind] if row[0] <= row[2]] == []
    received = dict(Payment.objects.values_list("pk", "received_on"))
    assert [row for row in days["receipt"] if row[0] < received[row[3]]] == []


@pytest.mark.django_db
class TestSeeding:
    MOMENT = at("2026-03-09 12:00")

    def seed(self) -> None:
        seeding.seed(moment=self.MOMENT, say=lambda _: None)

    @pytest.mark.peers  # takes long
    @pytest.mark.django_db(transaction=True)
    def test_a_year_is_invoiced_and_has_what_happens_in_a_year(self, settings: Any, tmp_path: Path) -> None:
        _pay_at_the_sandbox(settings, tmp_path)
        self.seed()
        invoices = list(Invoice.objects.issued().order_by("pk").select_related("tenant"))
        bills = [one for one in invoices if one.kind == DocumentKind.INVOICE]
        assert Counter(one.tenant.slug for one in bills) == {
            "halcyon-labs": 11, "biophysik": 11, "lakeside": 10, "orbit-robotics": 11,
        }  # fmt: skip
        (credit,) = [one for one in invoices if one.kind == DocumentKind.CREDIT_NOTE]
        assert (credit.tenant.slug, credit.total) == ("biophysik", -214_20)
        outbox.drain()
        for document in InvoiceDocument.objects.all():
            holds(bytes(document.einvoice or b""))
        last = [one for one in bills if one.tenant.slug == "biophysik"][-1]
        xrechnung = InvoiceDocument.objects.get(invoice=last).einvoice
        assert XRECHNUNG in bytes(xrechnung or b"").decode()
        assert InvoiceDocument.objects.count() == len(invoices)
        late = Payment.objects.filter(received_on__gt=F("invoice__due_on"))
        assert sorted(late.values_list("tenant__slug", flat=True)) == ["halcyon-labs", "lakeside"]
        open_ones = Counter(one.tenant.slug for one in Invoice.objects.all().unpaid())
        assert open_ones == {"halcyon-labs": 1, "biophysik": 1, "orbit-robotics": 2}
        _one_payment_is_disputed(self.MOMENT)
        _no_email_contradicts_what_it_is_about()
        assert Suspension.objects.get(ended_at=None).tenant.slug == "orbit-robotics"
        waiting = Transfer.objects.get(state="waiting")
        assert (waiting.amount, waiting.payer) == (last.total, "INSTITUT FUER BIOPHYSIK POTSDAM")
        (hint,) = suggestions.list_hints([waiting])[waiting.pk]
        assert (hint.number, hint.reason) == (last.number, "same amount, a similar name")
        assert AutomaticTopUp.objects.get().wallet.tenant.slug == "halcyon-labs"
        assert list(TopUp.objects.values_list("amount", "attempts__state")) == [(5_000_00, "succeeded")] * 4
        _each_model_has_a_margin(self.MOMENT)
        assert Wallet.objects.get().balance > 0
        assert Quarantined.objects.count() == 2
        assert DeclaredNode.objects.filter(cluster__name="atlas", state="drained").count() == 1
        assert UsageRecord.objects.filter(account__name="visitors", account__ownerships=None).count() > 20
        assert set(Cluster.objects.values_list("kind", "complete_through")) == {("import", self.MOMENT)}
        busy = UtilisationHour.objects.values_list("record_id", flat=True)
        assert set(UsageRecord.objects.filter(pk__in=busy).values_list("cluster__name", flat=True)) == {
            "atlas",
            "helix",
            "nimbus",
        }
        assert run("prove").endswith("Every sum closes.\n")
        assert all(
            User.objects.get(email=email).check_password(seeding.PASSWORD) for email, _ in seeding.LOGINS
        )

        evaluation, everything = sorted(
            load_statuses(list(Quota.objects.all()), moment=self.MOMENT), key=lambda one: one.amount
        )
        assert everything.amount * 8 / 10 <= everything.figure.used < everything.amount
        assert evaluation.figure.used < everything.figure.used
        tenants = Tenant.objects.all()
        outcomes = [
            *month_close.close_month(tenants=tenants, year=2026, month=2, moment=self.MOMENT, preview=True)
        ]
        blocked = {one.tenant: one.reason for one in outcomes if one.outcome == Outcome.BLOCKED}
        assert len(outcomes) == 4
        assert list(blocked) == ["lakeside"]
        assert "waits for approval" in blocked["lakeside"]

    @pytest.mark.peers  # takes long
    def test_a_kill_in_the_middle_is_made_good_with_the_same_rows(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class KilledError(Exception):
            pass

        def kill(_: Row | BusyHour) -> Row:
            raise KilledError

        @contextmanager
        def killed(cluster: str, moment: datetime) -> Iterator[Iterator[Row | BusyHour]]:
            with rows.made_apart(cluster, moment) as made:
                yield map(kill, made) if cluster == "nimbus" else made

        with monkeypatch.context() as patched:
            patched.setattr(seeding, "made_apart", killed)
            with pytest.raises(KilledError):
                self.seed()
        assert not seeding.is_seeded()
        assert not seeding.is_foreign()
        seeding.seed(moment=at("2026-03-10 09:00"), say=lambda _: None)
        assert seeding.is_seeded()
        assert set(Cluster.objects.values_list("complete_through", flat=True)) == {self.MOMENT}

    @pytest.mark.peers  # takes long
    def test_the_command_prints_the_logins_once_and_keeps_them_to_itself(
        self,
        settings: Any,
        tmp_path: Path,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        settings.ENV = dataclasses.replace(settings.ENV, home=tmp_path)
        monkeypatch.setattr(year, "live", lambda **_: None)  # the story above has it
        output = run("seed_demo")
        assert output.startswith("Sign in with the password clustertab-demo as\n  op@demo.example")
        logins_file = tmp_path / "logins.txt"
        assert logins_file.read_text() == output
        assert stat.S_IMODE(logins_file.stat().st_mode) == 0o600
        jobs = UsageRecord.objects.count()
        assert run("seed_demo") == ""
        assert "The demonstration data is there already." in capsys.readouterr().err
        assert UsageRecord.objects.count() == jobs

    def test_an_instance_with_something_else_in_it_is_left_alone(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        builders.a_tenant("vision-lab")
        assert run("seed_demo") == ""
        assert "no demonstration data was added" in capsys.readouterr().err
        assert (Tenant.objects.count(), Cluster.objects.count(), User.objects.count()) == (1, 0, 0)
