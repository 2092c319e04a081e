"""What prices by use come to: engine and plain fractions agree, whenever and however often telemetry tells it.

The utilisation is made up, over the jobs of a real cluster and over small sets of runs in any order: late, revised,
in parts, and after months were closed.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from zoneinfo import ZoneInfo

import pytest
from django.db import transaction
from django.db.models import Sum
from msgspec import structs

from billing.invoicing import statements
from billing.models import BillingPeriod, InvoiceLine, InvoiceState
from clusters.connectors.base import BusyHour, BusySource, UsageFact
from clusters.models import Cluster, UsageRecord
from portal.core.tenants.models import Tenant
from tests.builders import a_cluster, a_job, at, ingest
from tests.configuring_terms import SELLER, apply
from tests.scenarios import oracle
from tests.scenarios.oracle import Job, Plan, Price, Window
from tests.scenarios.oracle_plans import FAU, SUPERCLOUD, Site, written
from tests.scenarios.real import data, run
from tests.stories import close, prove
from tests.tiers import seeds

pytestmark = pytest.mark.django_db

METRIC = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
NIGHTS = (Window("01234", "21:30", "06:15"),)
BATCH = 2_000  # hours that are told at once


def by_use(site: Site) -> Plan:
    """Idle seconds are cheap by day and free by night, those that were not seen have a price; clocks off the hour."""
    where = {site.where[0]: site.where[1]}
    return Plan(
        "by-use",
        "USD",
        (
            Price(site.meter, (("", "2.30"),), where),
            Price(site.meter, (("", "1.0999"),)),
            Price(site.meter, (("", "0.377"),), {"use": "idle"}),
            Price(site.meter, (("", "1.7"),), where | {"use": "unknown"}),
            Price(site.meter, (("", "0"),), {"use": "idle"}, hours=NIGHTS),
            Price("cpu-core-hour", (("", "0.0123"),)),
        ),
        zone="Asia/Kathmandu",
        together=2,
    )


def with_hours_included(site: Site) -> Plan:
    """Tiers of busy seconds, idle ones apart, hours included in both, in a currency of three decimals."""
    steps = ((f"{site.hours / 10:.6f}", "3.001"), (f"{site.hours:.6f}", "2.503"), ("", "2.009"))
    return Plan(
        "by-use-included",
        "KWD",
        (
            Price(site.meter, steps, {"use": "busy"}, "graduated"),
            Price(site.meter, (("", "0.9"),), {"use": "idle"}),
            Price(site.meter, (("", "1.5"),)),
        ),
        zone="America/Los_Angeles",
        together=3,
        allowance=f"{site.hours}",
        rollover=True,
    )


def busy_hours_of(key: str, start: int, end: int, gpus: int, dice: random.Random) -> list[BusyHour]:
    """Of most hours of the run how busy its devices were, seen in part or whole, to the microsecond."""
    busy_hours = []
    for hour in range(start // 3600 * 3600, end, 3600):
        whole = gpus * (min(end, hour + 3600) - max(start, hour))
        covered = dice.choice([0, whole, whole, dice.randint(1, whole)]) if whole else 0
        if covered:
            micro = dice.choice([0, covered * 10**6, dice.randint(0, covered * 10**6)])
            busy_hours.append(BusyHour(key, hour, Decimal(micro) / 10**6, covered, BusySource.DEVICE, METRIC))
    return busy_hours


def with_busy(job: Job, hours: Iterable[BusyHour]) -> Job:
    return replace(job, busy={hour.hour: (Fraction(hour.busy), hour.covered) for hour in hours})


@pytest.mark.parametrize(
    "site",
    [
        pytest.param(FAU, id="fau"),
        pytest.param(SUPERCLOUD, id="supercloud", marks=pytest.mark.long),
    ],
)
def test_a_real_cluster_owes_by_use_what_plain_fractions_say(site: Site) -> None:
    """A third is known before the plan, a third is revised under it, and a third comes after the months are closed."""
    apply(f'{SELLER}[[cluster]]\nname = "real"\nkind = "import"\ntimezone = "UTC"\n')
    run("import_usage", "real", data(site.file), "--as-of", site.read_through)
    cluster = Cluster.objects.get()
    keys = {
        (account, start, end, gpus): key
        for account, start, end, gpus, key in UsageRecord.objects.order_by("-pk").values_list(
            "account__name", "started", "ended", "gpus", "source_key"
        )
    }
    dice = random.Random(7)
    work, hours, seen = [], [], set()
    for job in oracle.jobs(data(site.file)):
        key = keys[job.account, job.start, job.end, job.quantities["gpu-hour"]]
        own = [] if key in seen else busy_hours_of(key, job.start, job.end, job.quantities["gpu-hour"], dice)
        seen.add(key)
        hours += own
        work.append(with_busy(job, own))
    assert len(hours) > 400
    dice.shuffle(hours)
    third = len(hours) // 3
    for plan in (by_use(site), with_hours_included(site)):
        point = transaction.savepoint()
        wrong = [replace(hour, busy=Decimal(0)) for hour in hours[third : 2 * third]]
        tell(cluster, hours[:third] + wrong)
        apply(written(plan, site, work))
        tell(cluster, hours[third : 2 * third])
        months = oracle.months(plan, site.first, site.last)
        for month in months:
            run("close_period", month.name, "--as-of", site.read_through)
        tell(cluster, hours[2 * third :])
        expected = oracle.owed(plan, work, months, site.since)
        assert billed_and_pending() == {key: whole for key, whole in expected.items() if whole}, plan.name
        prove()
        transaction.savepoint_rollback(point)


def tell(cluster: Cluster, hours: Sequence[BusyHour]) -> None:
    for place in range(0, len(hours), BATCH):
        ingest(cluster, *hours[place : place + BATCH])


def billed_and_pending() -> dict[tuple[str, str], int]:
    """By tenant and service month what issued lines hold and what the next invoice would add."""
    totals: dict[tuple[str, str], int] = defaultdict(int)
    lines = InvoiceLine.objects.filter(invoice__state=InvoiceState.ISSUED).values_list(
        "tenant__slug", "service_period__start", "service_period__timezone"
    )
    for slug, start, zone, amount in lines.annotate(sum=Sum("amount")).values_list(
        "tenant__slug", "service_period__start", "service_period__timezone", "sum"
    ):
        totals[slug, named(start, zone)] += amount
    for tenant in Tenant.objects.all():
        last = BillingPeriod.objects.filter(tenant=tenant).order_by("-start").first()
        for line in statements.make_statement(tenant=tenant, period=last).lines if last else ():
            totals[tenant.slug, named(line.key.service.start, tenant.timezone)] += line.amount.minor
    return {key: whole for key, whole in totals.items() if whole}


def named(start: datetime, zone: str) -> str:
    return f"{start.astimezone(ZoneInfo(zone)):%Y-%m}"


# Any order


PLAN = Plan(
    "any-order",
    "USD",
    (
        Price("gpu-hour", (("40", "2.3"), ("", "1.9")), {"use": "busy"}, "graduated"),
        Price("gpu-hour", (("", "0.31"),), {"use": "idle"}),
        Price("gpu-hour", (("", "1.1"),), {"use": "busy", "queue": "batch"}),
        Price("gpu-hour", (("", "1.3"),)),
        Price("gpu-hour", (("", "0.05"),), {"use": "unknown"}, hours=NIGHTS),
    ),
    zone="America/Havana",
    together=2,
)
SITE = replace(FAU, since=date(2026, 2, 1), first="2026-02", last="2026-05")


@dataclass(frozen=True)
class World:
    """Runs as they ended, and each thing that is told of them, in an order that could be."""

    jobs: list[Job]
    facts: dict[str, list[UsageFact | BusyHour]]  # by run: it first, then hours, the last word on each last


def a_world(dice: random.Random) -> World:
    jobs, facts = [], {}
    for number in range(7):
        key = f"{number}@1"
        start = int(at("2026-02-20").timestamp()) + dice.randint(0, 60 * 86_400)
        end = start + dice.choice([dice.randint(1, 9000), dice.randint(1, 40 * 3600)])
        gpus, queue = dice.choice([1, 1, 3, 8]), dice.choice(["batch", "day"])
        account = dice.choice(["alpha", "beta"])
        fact = a_job(
            source_key=key, job_id=str(number), account=account, queue=queue, gpus=gpus, started=start, ended=end,
            submitted=start,
        )  # fmt: skip
        halfway = structs.replace(fact, ended=None, seen_until=dice.randint(start, end), state="RUNNING")
        last = busy_hours_of(key, start, end, gpus, dice)
        early = busy_hours_of(key, start, halfway.seen_until or start, gpus, dice)
        hours: list[UsageFact | BusyHour] = [*early, fact, *last]
        last_hours = {row.hour for row in last}
        hours += [
            BusyHour(key, row.hour, Decimal(0), 0, row.source, METRIC)
            for row in early
            if row.hour not in last_hours
        ]
        facts[key] = [halfway, *hours]
        job = Job(number, account, "ben", {"queue": queue, "state": "COMPLETED", "gpu_model": "a100"}, start, end,
                  {"gpu-hour": gpus})  # fmt: skip
        jobs.append(with_busy(job, last))
    return World(jobs, facts)


def interleaved(world: World, dice: random.Random) -> list[UsageFact | BusyHour]:
    """The facts of all runs mixed, those of each in their own order."""
    waiting = {key: list(facts) for key, facts in world.facts.items()}
    sequence = []
    while waiting:
        key = dice.choice(sorted(waiting))
        some = dice.randint(1, 5)
        sequence += waiting[key][:some]
        waiting[key] = waiting[key][some:]
        if not waiting[key]:
            del waiting[key]
    return sequence


@pytest.mark.peers  # takes long
@pytest.mark.parametrize("seed", seeds(range(40), short=3))
def test_any_order_and_batching_of_runs_and_what_telemetry_says_owes_the_same(seed: int) -> None:
    dice = random.Random(seed)
    world = a_world(dice)
    months = oracle.months(PLAN, SITE.first, SITE.last)
    expected = {
        key: whole for key, whole in oracle.owed(PLAN, world.jobs, months, SITE.since).items() if whole
    }
    apply(f'{SELLER}[[cluster]]\nname = "real"\nkind = "import"\ntimezone = "UTC"\n')
    cluster = a_cluster("real")
    apply(written(PLAN, SITE, world.jobs))
    assert expected
    invoices = []
    for closing_between in (False, False, True):
        point = transaction.savepoint()
        story = interleaved(world, dice)
        while story:
            size = dice.choice([1, 3, 50])
            ingest(cluster, *story[:size])
            story = story[size:]
            if closing_between and dice.random() < 0.2:
                close(dice.choice(["2026-02", "2026-03"]), on="2026-06-02", accept="read so far")
        prove()
        for month in months:
            close(month.name, on="2026-06-02", accept="all of it is read")
        assert billed_and_pending() == expected, (seed, closing_between)
        prove()
        if not closing_between:
            invoices.append(
                list(
                    InvoiceLine.objects.filter(invoice__state=InvoiceState.ISSUED)
                    .order_by("tenant__slug", "invoice__period_start", "position")
                    .values_list(
                        "tenant__slug", "position", "project", "description", "seconds_num", "amount"
                    )
                )
            )
        transaction.savepoint_rollback(point)
    assert invoices[0] == invoices[1]
