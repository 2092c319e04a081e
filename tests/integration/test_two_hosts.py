"""Two hosts, one database, one Redis: they pull, rate, close and charge together while everything is killed in turn.

Each host has a home of its own, and its own network where the kernel allows that: it reaches PostgreSQL and Redis by
their sockets, Slurm and Stripe by a relay. The stand-ins answer whoever comes.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml
from django.db import DatabaseError, connection
from django.db.models.functions import Now
from kombu import Connection as Broker

from billing.catalog import plans
from billing.invoicing import close_runs, month_close
from billing.models import CloseKind, CloseRun, Payment, Price
from billing.payments import collection_run, customers, gateway_access, saved_methods
from billing.rating import pulls, reratings
from billing.rules.meters import PerUnit
from clusters.models import Cluster, ClusterKind, Connection, UsageRecord
from portal.celery import app
from portal.core.outbox import outbox
from portal.core.outbox.models import OutboxMessage
from portal.core.tenants.models import Tenant
from portal.core.vault import seal
from portal.dev.embedded.redis import Redis
from portal.dev.stripe_sandbox.sandbox import Sandbox
from portal.env import ROOT, broker
from portal.ops.backups import with_name
from tests import peers
from tests.builders import a_cluster, a_plan, a_tenant
from tests.fakes.slurm_world import Job, World
from tests.fakes.slurmrestd import StandIn
from tests.integration.host import FileRelay, serve
from tests.integration.test_kill_import_and_close import invoices, jobs, ledger, totals
from tests.integration.test_recovery_to_a_moment import Archiving, served_by
from tests.stories import prove

pytestmark = pytest.mark.usefixtures("transactional_db")

LABS, JOBS, PATIENCE = 24, 600, 240  # seconds
KINDS = ("pull", "rate", "collect")
SERVICES = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
ALONE = ["--without-gossip", "--without-mingle"]
SERVER, REDIS = "postgres", "redis"
OWN = ["--net", "--uts"] if os.geteuid() == 0 else ["--user", "--map-root-user", "--net", "--uts"]


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 10))])
def test_killed_in_turn_two_hosts_come_to_the_books_of_one_that_is_left_alone(
    seed: int, tmp_path: Path, settings: Any
) -> None:
    if os.environ["DATABASE_URL"] != peers.POSTGRES.url():
        pytest.skip("needs the embedded PostgreSQL")
    began = datetime.now(UTC).replace(microsecond=0)
    with ExitStack() as stack:
        server = Archiving(tmp_path / "live")
        server.begin()
        stack.enter_context(server)
        stack.enter_context(served_by(server))
        stripe = stack.enter_context(Sandbox())
        settings.STRIPE_SECRET_KEY, settings.STRIPE_API_BASE = stripe.key, stripe.url
        slurm = stack.enter_context(StandIn(44, world=a_month_of_jobs(began)))
        slurm.before = lambda _: slow(slurm)
        redis = stack.enter_context(Redis(tmp_path / "broker"))
        month = f"{began.replace(day=1) - timedelta(days=1):%Y-%m}"

        a_site("calm", slurm, stripe, began)
        does_all_by_itself(month)
        a_site("storm", slurm, stripe, began)
        pair = [
            Host(tmp_path / name, environ_of(server, redis, stripe, settings), [slurm.url, stripe.url])
            for name in ("host-a", "host-b")
        ]
        for host in pair:
            stack.enter_context(host.runs())
        storm = Storm(server, redis, pair, random.Random(seed))
        storm.pulls(slurm)
        storm.rates()
        storm.closes(month)
        storm.charges()

    # The servers are gone; what they held was read by the storm while they were there.
    assert storm.books["storm"] == storm.books["calm"]
    assert len(storm.books["storm"]["invoices"]) == LABS
    assert storm.kills >= {SERVER, REDIS, *(f"{host} {kind}" for host in "ab" for kind in KINDS)}
    assert storm.kills >= {"a", "b"}
    assert stripe.violations == []
    intents = stripe.objects("payment_intent")
    assert [intent["status"] for intent in intents] == ["succeeded"] * 2 * LABS


def a_month_of_jobs(began: datetime) -> World:
    """They ran on the last two days of the month before."""
    dice, end = random.Random(1), int(began.replace(day=1, hour=0, minute=0, second=0).timestamp())
    world = World()
    for number in range(1, JOBS + 1):
        start = end - dice.randrange(7_200, 2 * 86_400)
        job = Job(number, account=f"lab{number % LABS}", state="COMPLETED", gpus=1 + number % 4)
        job.submitted, job.started, job.ended = start - 60, start, start + dice.randrange(60, 7_000)
        world.add(job)
    return world


def slow(slurm: StandIn) -> None:
    """As a scheduler far away, whose clock is right."""
    slurm.now = int(time.time())
    time.sleep(0.02)


def a_site(name: str, slurm: StandIn, stripe: Sandbox, now: datetime) -> None:
    """Two clusters of the same jobs; each lab has an account on both, and a card that is charged at once."""
    clusters = [a_cluster(f"{name}-{number}", kind=ClusterKind.SLURM) for number in (1, 2)]
    plan = a_plan(name)
    gateway = gateway_access.get_gateway()
    for number in range(LABS):
        accounts = [(cluster, f"lab{number}") for cluster in clusters]
        lab = a_tenant(f"{name}-{number:02}", plan=plan, accounts=accounts, payment_terms_days=0)
        customer = customers.get_customer(lab, gateway=gateway, moment=now)
        card = gateway.find_method(stripe.dashboard.save_card(customer, "4242424242424242"))
        assert saved_methods.save_method(tenant=lab, method=card, moment=now) is not None
    first = now.replace(day=1, hour=0, minute=0, second=0) - timedelta(days=2)
    for cluster in clusters:
        Connection.objects.create(
            cluster=cluster, base_url=slurm.url, user="portal", token=seal(slurm.token()), every=30,
            first_usage_from=first,
        )  # fmt: skip


def correct(name: str, unit_price: str) -> None:
    plans.correct_price(
        price=Price.objects.get(version__plan__name=name),
        model=PerUnit(Decimal(unit_price)),
        reason="Agreed on.",
    )


def does_all_by_itself(month: str) -> None:
    for cluster in Cluster.objects.filter(name__startswith="calm"):
        assert pulls.pull(cluster, moment=datetime.now(UTC)).outcome is pulls.PullOutcome.DONE
    correct("calm", "1.70")
    outbox.drain()
    moment = datetime.now(UTC).replace(microsecond=0)
    year, number = map(int, month.split("-"))
    outcomes = month_close.close_month(
        tenants=Tenant.objects.order_by("slug"), year=year, month=number, moment=moment, now=moment
    )
    assert len(list(outcomes)) == LABS
    collection_run.run_collection(gateway=gateway_access.get_gateway(), clock=lambda: datetime.now(UTC))
    assert Payment.objects.count() == LABS


def environ_of(server: Archiving, redis: Redis, stripe: Sandbox, settings: Any) -> dict[str, str]:
    return os.environ | {
        "DJANGO_SETTINGS_MODULE": "portal.settings",
        "DATABASE_URL": with_name(server.url(), connection.settings_dict["NAME"]),
        "REDIS_URL": redis.url(),
        "CLUSTERTAB_SECRET_KEYS": ",".join(settings.CLUSTERTAB_SECRET_KEYS),
        "STRIPE_SECRET_KEY": stripe.key,
        "STRIPE_API_BASE": stripe.url,
        "STRIPE_MODE": "test",
    }


@dataclass
class Host:
    """A process tree with a home, of the services that docker-compose.yml has."""

    home: Path
    environ: dict[str, str]
    urls: Sequence[str]
    own_network: bool = field(
        default_factory=lambda: subprocess.run(["unshare", *OWN, "true"]).returncode == 0
    )
    groups: set[int] = field(default_factory=set)  # of all services that ever ran

    @contextmanager
    def runs(self) -> Iterator[None]:
        self.home.mkdir()
        with ExitStack() as stack:
            sockets = Path(stack.enter_context(TemporaryDirectory()))  # a socket's path has 107 bytes at most
            ports = {url.rpartition(":")[2]: sockets / str(number) for number, url in enumerate(self.urls)}
            for port, path in ports.items() if self.own_network else ():
                relay = FileRelay(path, int(port))
                serve(relay)
                stack.callback(relay.shutdown)
            services = {kind: [*SERVICES[f"worker-{kind}"]["command"], *ALONE] for kind in KINDS}
            services["scheduler"] = SERVICES["scheduler"]["command"]
            (self.home / "host.json").write_text(
                json.dumps(
                    {
                        "apart": self.own_network,
                        "ports": {port: str(path) for port, path in ports.items()},
                        "services": {
                            name: [sys.executable, *command[1:]] for name, command in services.items()
                        },
                    }
                )
            )
            try:
                self.start()
                yield
            finally:
                self.kill()

    def start(self) -> None:
        command = [sys.executable, "-m", "tests.integration.host", str(self.home)]
        environ = self.environ | {"CLUSTERTAB_HOME": str(self.home)}
        apart = ["unshare", *OWN] if self.own_network else []
        with (self.home / "host.log").open("ab") as log:
            self.manager = subprocess.Popen(
                [*apart, *command], env=environ, cwd=ROOT, stdout=log, stderr=log, start_new_session=True
            )

    def kill(self) -> None:
        """The power is gone."""
        os.killpg(self.manager.pid, signal.SIGKILL)
        self.manager.wait()
        for group in self.groups | set(self._running().values()):
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
        (self.home / "running.json").unlink(missing_ok=True)

    def kill_service(self, name: str, *, children: bool) -> bool:
        """Kill -9 its process, and those that it forked, or leave them behind; whether it ran."""
        running = self._running()
        self.groups.update(running.values())
        with suppress(KeyError, ProcessLookupError):  # of a host that has just begun
            (os.killpg if children else os.kill)(running[name], signal.SIGKILL)
            return True
        return False

    def _running(self) -> dict[str, int]:
        with suppress(FileNotFoundError):
            running: dict[str, int] = json.loads((self.home / "running.json").read_text())
            return running
        return {}

    def log(self) -> str:
        return "\n".join((self.home / name).read_text()[-20_000:] for name in ("host.log", "services.log"))


@dataclass
class Storm:
    """What is killed while the hosts are at work, and the books of both sites at the end."""

    server: Archiving
    redis: Redis
    pair: Sequence[Host]
    dice: random.Random
    kills: set[str] = field(default_factory=set)
    books: dict[str, dict[str, Any]] = field(default_factory=dict)

    def pulls(self, slurm: StandIn) -> None:
        for victim in self._shuffled("a pull", "b pull", SERVER, REDIS, "a scheduler"):
            slurm.requests.clear()
            self._until(lambda: len(slurm.requests) > 1, "billing.tasks.pull_due")
            self._kill(victim)
        late = datetime.now(UTC) - timedelta(hours=1)
        through = Cluster.objects.filter(name__startswith="storm", complete_through__gt=late)
        self._until(lambda: through.count() == 2, "billing.tasks.pull_due")
        assert UsageRecord.objects.count() == 4 * JOBS

    def rates(self) -> None:
        """The price is corrected again before the hosts are done with it."""
        for number, victim in enumerate(self._shuffled("a rate", "b rate", "b collect", "b", "b scheduler")):
            correct("storm", f"1.{number}")
            self._kill(victim)
            self._until(_answers, "portal.core.outbox.tasks.dispatch")
        correct("storm", "1.70")
        self._until(lambda: reratings.count_changes() == 0, "portal.core.outbox.tasks.dispatch")

    def closes(self, month: str) -> None:
        moment = datetime.now(UTC).replace(microsecond=0)
        run = close_runs.request_run(month=month, kind=CloseKind.ISSUE, by="op", moment=moment)
        for victim in self._shuffled("a rate", "b rate", SERVER, "a"):
            self._until(
                lambda: CloseRun.objects.get(pk=run.pk).attempts > 0 or _is_over(run),
                "billing.tasks.closes_due",
            )
            self._kill(victim)
        self._until(lambda: _is_over(run), "billing.tasks.closes_due")
        assert CloseRun.objects.get(pk=run.pk).error == ""

    def charges(self) -> None:
        for victim in self._shuffled("a collect", "b collect", REDIS, "a scheduler", "b"):
            more_is_paid = partial(_is_paid, Payment.objects.count() + 1)
            self._until(more_is_paid, "billing.tasks.collect")
            self._kill(victim)
        self._until(partial(_is_paid, 2 * LABS), "billing.tasks.collect")
        for name in ("calm", "storm"):
            self.books[name] = {
                "ledger": [ledger(f"{name}-{number}") for number in (1, 2)],
                "jobs": [jobs(f"{name}-{number}") for number in (1, 2)],
                "totals": totals(name),
                "invoices": invoices(name),
                "payments": sorted(
                    Payment.objects.filter(tenant__slug__startswith=name).values_list("amount", flat=True)
                ),
            }
        prove()

    def _shuffled(self, *victims: str) -> list[str]:
        return self.dice.sample(victims, len(victims))

    def _kill(self, victim: str) -> None:
        time.sleep(self.dice.uniform(0, 0.5))
        name, _, service = victim.partition(" ")
        if victim == SERVER:
            self.server.kill()
            time.sleep(self.dice.uniform(0, 1))
            self.server.ensure()
        elif victim == REDIS:
            self.redis._sweep()  # which has nothing on its disk
            time.sleep(self.dice.uniform(0, 1))
            self.redis.ensure()
        elif service:
            host = self.pair["ab".index(name)]
            until(lambda: host.kill_service(service, children=self.dice.random() < 0.7), host.log)
        else:
            self.pair["ab".index(name)].kill()
            self.pair["ab".index(name)].start()
        self.kills.add(victim)

    def _until(self, so: Callable[[], bool], task: str) -> None:
        """As time goes by: what is put off is due, and the schedule wakes the workers."""

        def is_so() -> bool:
            with suppress(DatabaseError, OSError):
                if so():
                    return True
                Connection.objects.filter(cluster__name__startswith="storm").update(next_pull_at=None)
                OutboxMessage.objects.undone().update(available_at=Now())
                with Broker(broker(self.redis.url())) as broker_connection:
                    app.send_task(task, connection=broker_connection, expires=5)
                return False
            connection.close()
            return False

        until(is_so, lambda: "\n".join(host.log() for host in self.pair))


def _answers() -> bool:
    """Whether the database is there again."""
    return CloseRun.objects.exists() in {True, False}


def _is_over(run: CloseRun) -> bool:
    return CloseRun.objects.get(pk=run.pk).ended_at is not None


def _is_paid(count: int) -> bool:
    """Whether so many invoices are, or all."""
    return Payment.objects.count() >= min(count, 2 * LABS)


def until(so: Callable[[], bool], log: Callable[[], str]) -> None:
    end = time.monotonic() + PATIENCE
    while not so():
        assert time.monotonic() < end, log()
        time.sleep(0.25)
