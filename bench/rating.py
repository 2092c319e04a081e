"""Rating a ledger anew, rating it again for nothing, correcting what its prices come to, and a fiftieth's plan."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial

from django.db import connection
from django.db.models import QuerySet

from bench import instance, jobs, limits, world
from bench.meter import Cost, measure, middle
from bench.result import DifferentWorkError, Goal, Result
from bench.scale import Scale
from billing.catalog import plans
from billing.models import PeriodTotal, Plan, Price, Subscription
from billing.rating import engine
from billing.rules.meters import PerUnit
from clusters import usage
from portal.core.tenants.models import Ownership, Tenant

NAMES = ("rate", "rerate", "reprice", "correct")
ACCOUNTS = 50
PRICES = 20  # corrected one after the other, since one takes less than the clock can tell
RUN, READY = "bench_run", "bench_ready"


def works(scale: Scale, postmaster: int, names: set[str]) -> Iterator[Result]:
    """They follow each other in the same database, since each needs what the one before has left."""
    if not names & set(NAMES):
        return
    log = Log()
    count = scale.of(300_000)
    instance.copy(instance.EMPTY, READY)
    cluster = world.build(ACCOUNTS, charges=("gpu", "cpu"), changes=True)
    world.load_records(cluster, jobs.jobs(count, accounts=ACCOUNTS, days=45))
    world.resolve_terms()
    limits.tables()
    costs: dict[str, list[Cost]] = {name: [] for name in (*NAMES, "rate limit", "correct limit")}
    changed = 0
    for _ in range(scale.rounds):
        ours, changed = _ours(postmaster, costs, log)
        if ours != (limit := _limit(postmaster, costs)):
            raise DifferentWorkError(f"ours {ours}, limit {limit}")
    of = {name: middle(samples) for name, samples in costs.items()}
    instance.drop(RUN, READY)
    title = "usage × 3 resources, owners, plans and prices change"
    yield Result("rate", title, count, "usage", of["rate"], of["rate limit"], Goal(at_least="0.50"))
    yield Result(
        "rerate", "the same again, beside its own rating", count, "usage", of["rerate"], of["rate"],
        Goal(at_most="1.0"),
    )  # fmt: skip
    yield Result(
        "reprice", "another amount of the price that rated most, beside rating", count, "usage", of["reprice"],
        of["rate"], Goal(at_most="0.02"), detail=log.text(),
    )  # fmt: skip
    yield Result(
        "correct", "a retroactive price on 2 %", changed, "rows", of["correct"], of["correct limit"],
        Goal(at_least="0.40"),
    )  # fmt: skip


@dataclass
class Log:
    """Bytes of WAL: of one correction of a price, and of what then places the jobs of several prices anew."""

    correction: int = 0
    places: int = 0
    placed: int = 0  # so many jobs
    totals: int = 0  # of periods, by the price

    def text(self) -> str:
        return (
            f"WAL {self.correction / 1024:.1f} KiB for {self.totals} period totals; {self.placed} jobs of several"
            f" prices placed anew, {self.places / max(self.placed, 1):.0f} bytes each"
        )


def _ours(postmaster: int, costs: dict[str, list[Cost]], log: Log) -> tuple[list[object], int]:
    """What came of it, and how many rows the correction wrote."""
    instance.copy(READY, RUN)
    everything = partial(engine.rate_accounts, usage.account_ids())
    costs["rate"].append(measure(everything, postmaster))
    sums: list[object] = [limits.sums("billing")]
    before = _written()
    costs["rerate"].append(measure(everything, postmaster))
    if before != _written():
        raise DifferentWorkError("rating again has written rows")
    begun = _wal()
    whole = measure(_reprice, postmaster)
    log.correction, log.totals = (_wal() - begun) // PRICES, _totals().count()
    costs["reprice"].append(Cost(whole.cpu / PRICES, whole.client / PRICES, whole.wall / PRICES, whole.peak))
    if before != _written():
        raise DifferentWorkError("correcting a price has written rows")
    begun = _wal()
    everything()
    log.places, log.placed = _wal() - begun, _jobs_written_since(before[1])
    if before[0] != _rows():
        raise DifferentWorkError("correcting a price has rated something again")
    tenant = change_plan()
    costs["correct"].append(measure(partial(engine.rate_tenants, [tenant]), postmaster))
    return [*sums, limits.sums("billing")], _rows() - before[0]


def _limit(postmaster: int, costs: dict[str, list[Cost]]) -> list[object]:
    instance.copy(READY, RUN)
    costs["rate limit"].append(measure(limits.rate, postmaster))
    sums: list[object] = [limits.sums("bench")]
    tenant = change_plan()
    world.correct_terms()
    costs["correct limit"].append(measure(partial(_correct, tenant), postmaster))
    return [*sums, limits.sums("bench")]


def _reprice() -> None:
    """The price that rated most comes to something else, so many times."""
    price = Price.objects.get(pk=_totals()[0].price_id or 0)
    for cents in range(1, PRICES + 1):
        plans.correct_price(
            price=price, model=PerUnit(price.unit_price + Decimal(cents) / 100), reason="bench"
        )


def _jobs_written_since(xmin: int) -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM billing_ratedjob WHERE xmin::text::bigint > %s", [xmin])
        return int(cursor.fetchone()[0])


def _totals() -> QuerySet[PeriodTotal]:
    """Of the price that rated most."""
    most = PeriodTotal.objects.filter(price_id__isnull=False, resource="gpu").order_by("-units")[0]
    return PeriodTotal.objects.filter(price_id=most.price_id)


def _wal() -> int:
    """Bytes that were ever logged."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint")
        return int(cursor.fetchone()[0])


def change_plan() -> Tenant:
    """The first tenant has been on the other plan from the beginning, as it turns out."""
    tenant = Tenant.objects.order_by("pk")[0]
    Subscription.objects.filter(tenant=tenant).delete()
    premium = Plan.objects.get(name="premium")
    Subscription.objects.create(tenant=tenant, plan=premium, since=datetime(2025, 1, 1, tzinfo=UTC))
    return tenant


def _correct(tenant: Tenant) -> None:
    with connection.cursor() as cursor:
        for account in Ownership.objects.filter(tenant=tenant).values_list("account", flat=True):
            cursor.execute(limits.CORRECT, [account])


def _rows() -> int:
    return _written()[0]


def _written() -> tuple[int, ...]:
    """Rated rows, and the newest row version of each table that rating writes."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT (SELECT count(*) FROM billing_ratedusage),"
            " (SELECT max(xmin::text::bigint) FROM billing_ratedjob),"
            " (SELECT max(xmin::text::bigint) FROM billing_daytotal)"
        )
        row: tuple[int, ...] = cursor.fetchone()
        return row
