"""The house of two labs as the examples of the reference find it on 20 April 2026, and the ids that they print."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from billing.catalog import plans
from billing.invoicing import close_runs
from billing.models import (
    CloseRun,
    FailureRule,
    PaymentLink,
    PendingApproval,
    SealedFile,
    SealedMonth,
    ServiceCredit,
    WasteFinding,
    WasteRule,
)
from billing.receivables import manual_payments, pauses
from billing.rules.money import Money
from billing.sign_up import departures, plan_changes
from billing.tasks import render_document
from billing.wallets import grants, wallet_holds
from clusters import meters
from clusters.models import Cluster
from portal.api import identifiers, keys
from portal.core.audit import acting_as
from portal.core.tenants import invitations, ownership
from portal.core.tenants.models import Role
from portal.core.webhooks import deliveries
from tests import builders
from tests.api.door import Door, a_key
from tests.api.test_walk import named
from tests.fakes.scheduler_port import a_world, connected
from tests.fakes.slurm_world import Job
from tests.fakes.slurmrestd import StandIn
from tests.web.house import APRIL, House, a_house
from tests.web.sign_up_stories import offer_plans

TODAY = "2026-04-20 12:00"
ID = re.compile(r"\b([a-z]+)_([0-9a-hjkmnp-tv-z]{13})\b")
MOMENT = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)")
PREFIX = "7Hk2mQ9x"
WEBHOOK = ("https://erp.example/", "https://93.184.216.34/")
VARYING = (
    (re.compile(r"whsec_[0-9A-Za-z+/=_-]+"), "whsec_…"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "…"),
    (keys.IN_TEXT, "ct_live_…"),
    (re.compile(r"/pay/[^/\"]+/"), "/pay/…/"),
    (re.compile(r'"next": "[^"]+"'), '"next": "…"'),
    (re.compile(r'"prefix": "[0-9A-Za-z]{8}"'), f'"prefix": "{PREFIX}"'),
    (re.compile(r"API key [0-9A-Za-z]{8}\)"), f"API key {PREFIX})"),
    (re.compile(r'"(\w+_id|id)": \d+'), r'"\1": 42'),  # columns of rows, in the history
    (re.compile(r'"row": "\d+"'), '"row": "42"'),
    (re.compile(r"127\.0\.0\.1:\d+"), "slurm.example:6820"),
)
"""What differs from run to run, and what is printed instead."""


@dataclass
class World:
    """`real` has the ids of this database by those that the examples print."""

    house: House
    ann: Door
    op: Door
    real: dict[str, str]

    def asked(self, text: str) -> str:
        """The text with the ids of this database, and with an address that is not looked up."""
        return ID.sub(lambda match: self.real.get(match[0], match[0]), text.replace(*WEBHOOK))

    def printed(self, answer: Any) -> Any:
        """The answer with the ids that examples print, and `…` for what differs from run to run."""
        text = json.dumps(answer, ensure_ascii=False)
        known = {real: shown for shown, real in self.real.items()}
        others: dict[str, int] = {}

        def identifier(match: re.Match[str]) -> str:
            kind = match[1]
            if match[0] not in known:
                others[kind] = others.get(kind, 1) + 1
                known[match[0]] = identifiers.write(kind, others[kind])
            return known[match[0]]

        text = ID.sub(identifier, text)
        text = text.replace(WEBHOOK[1], WEBHOOK[0])
        for pattern, shown in VARYING:
            text = pattern.sub(shown, text)
        return json.loads(MOMENT.sub(_moment, text))


def _moment(match: re.Match[str]) -> str:
    """What the clock of the test said is the day of the examples."""
    at = datetime.fromisoformat(match[0])
    is_now = abs(datetime.now(UTC) - at) < timedelta(days=2)
    return "2026-04-20T12:00:00Z" if is_now else match[0]


@contextmanager
def a_world_of_examples() -> Iterator[World]:
    house = a_house()
    moment = builders.at(TODAY)
    with StandIn(44, world=a_world()) as slurm:
        slurm.world.add(Job(11), Job(12, state="RUNNING", reason="None", started=1_772_000_100))
        connected(slurm, name="rhea")
        names = named(house)
        idle, failed = _an_idle_job(house, moment), _a_failed_job(house, moment)
        close_runs.perform_run(CloseRun.objects.get().pk, clock=lambda: builders.at("2026-05-02"))
        own = Cluster.objects.create(name="own", kind="push", complete_through=builders.at(APRIL))
        meters.declare_meter(
            name="storage", title="Storage", unit="GB-month", per_unit=730, counted="GB-hours"
        )
        ownership.assign(account=own.accounts.create(name="vision"), tenant=house.vision)
        plans.new_version(
            plan=plans.set_plan(name="pilot", currency="USD"),
            effective_from=builders.LONG_AGO,
            charges=["gpu"],
        )
        _april(house)
        _money(house, moment)
        PaymentLink.objects.update(created_at=moment, expires_at=moment + timedelta(days=30))
        invitation = invitations.invite(
            tenant=house.vision,
            email="dan@vision.example",
            role=Role.MEMBER,
            by="ann@vision.example",
            moment=moment,
        )
        render_document(invoice_id=house.invoice.pk)
        deliveries.place_events(moment=moment)
        real = {
            identifiers.write(text.split("_")[0], 1): text for text in names.values() if ID.fullmatch(text)
        }
        real |= {
            identifiers.write("ivt", 1): identifiers.write("ivt", invitation.pk),
            identifiers.write("inv", 1): identifiers.write("inv", house.invoice.pk),
            identifiers.write("wst", 1): identifiers.write("wst", idle),
            identifiers.write("svc", 1): identifiers.write("svc", failed),
        }
        _sealed_march(moment)
        _choices_of_plans(house, moment)
        ann, op = a_key(house.ann, house.vision), a_key(house.op, None)
        yield World(house, Door(ann.secret), Door(op.secret), real)


def _choices_of_plans(house: House, moment: datetime) -> None:
    """Ann may choose among three public plans: she has planned a change, and asks to leave."""
    offer_plans(house)
    plan_changes.change_plan(tenant=house.vision, plan="growth", moment=moment)
    departures.ask_to_leave(
        tenant=house.vision,
        leaves_on=date(2026, 7, 1),
        reason="",
        by="ann@vision.example",
        moment=moment,
    )


def _april(house: House) -> None:
    """A GPU for an hour a day, a row that nobody could read, and an account without an owner."""
    days = range(10, 20)
    builders.ingest(
        house.cluster,
        *(
            builders.a_job(job_id=f"4{day}", started=f"2026-04-{day} 10:00", ended=f"2026-04-{day} 11:00")
            for day in days
        ),
        builders.a_job(job_id="99", account="guests", started="2026-04-02 10:00", ended="2026-04-02 11:00"),
        builders.a_bad_row(),
        as_of=APRIL,
    )
    april = house.vision.periods.get(start=builders.at("2026-04-01"))
    PendingApproval.objects.update(period=april)


def _sealed_march(moment: datetime) -> None:
    with acting_as("op@cluster.example"):
        month = SealedMonth.objects.create(
            month=date(2026, 3, 1), sealed_at=moment, changed_at=moment, checked_at=moment
        )
    for kind, size in (("records", 92_480_112), ("jobs", 128_310_774)):
        SealedFile.objects.create(
            month=month, kind=kind, bytes=size, rows=3_120_400, sha256="0" * 64, rows_sha256="0" * 64, sums=[]
        )


def _an_idle_job(house: House, moment: datetime) -> int:
    """One that a rule has announced."""
    row = WasteFinding.objects.create(
        tenant=house.vision,
        rule=WasteRule.objects.get(),
        record_id=1,
        job_key="17@1772445600",
        job_id="17",
        job_name="train",
        user="ben",
        cluster="gpu1",
        account="vision",
        gpus=2,
        share_num=1,
        share_den=1,
        gpu_model="a100",
        state="announced",
        began_at=moment - timedelta(minutes=40),
        idle_since=moment - timedelta(hours=4),
        due_at=moment + timedelta(hours=2),
        hour_cost=Decimal(4),
        currency="USD",
    )
    return row.pk


def _a_failed_job(house: House, moment: datetime) -> int:
    """One that waits for its invoice."""
    row = ServiceCredit.objects.create(
        tenant=house.vision,
        failure_rule=FailureRule.objects.get(),
        record_id=2,
        job_id="18",
        job_name="train",
        user="ben",
        cluster="gpu1",
        failed_at=moment - timedelta(hours=5),
        ended_at=moment - timedelta(hours=4),
        cause="XID 79",
        gpu="GPU-5fd4f7ce-1b2a-4c3d-8e9f-0a1b2c3d4e5f",
        node="gpu1-07",
        part="run",
        percent=100,
        state="waiting",
        began_at=moment - timedelta(hours=3),
    )
    return row.pk


def _money(house: House, moment: datetime) -> None:
    grants.grant(
        wallet=house.wallet,
        amount=2500,
        key="welcome",
        who="op",
        why="Welcome",
        moment=builders.at("2026-04-01 09:00"),
    )
    wallet_holds.hold(wallet=house.wallet, amount=700, key="job 9", moment=builders.at("2026-04-02"))
    manual_payments.record_transfer(
        invoice=house.invoice, amount=Money.of("5.00", "USD"), received_on=builders.at("2026-04-06").date(),
        reference="A1", recorded_by="op", at=builders.at("2026-04-06"),
    )  # fmt: skip
    pauses.pause_dunning(
        tenant=house.speech, invoice=None, until=None, reason="talks", by="op", moment=moment
    )
