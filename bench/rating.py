"""Rating a ledger anew, rating it again for nothing, and correcting the price of a fiftieth of it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial

from django.db import connection

from bench import instance, jobs, limits, world
from bench.meter import Cost, measure, middle
from bench.result import DifferentWorkError, Goal, Result
from bench.scale import Scale
from billing.models import Plan, Subscription
from billing.rating import engine
from clusters import usage
from portal.core.tenants.models import Ownership, Tenant

NAMES = ("rate", "rerate", "correct")
ACCOUNTS = 50
RUN, READY = "bench_run", "bench_ready"


def works(scale: Scale, postmaster: int, names: set[str]) -> Iterator[Result]:
    """The three follow each other in the same database, since each needs what the one before has left."""
    if not names & set(NAMES):
        return
    count = scale.of(300_000)
    instance.copy(instance.EMPTY, READY)
    cluster = world.build(ACCOUNTS, charges=("gpu", "cpu"), changes=True)
    world.load_records(cluster, jobs.jobs(count, accounts=ACCOUNTS, days=45))
    world.resolve_terms()
    limits.tables()
    costs: dict[str, list[Cost]] = {name: [] for name in (*NAMES, "rate limit", "correct limit")}
    changed = 0
    for _ in range(scale.rounds):
        ours, changed = _ours(postmaster, costs)
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
        "correct", "a retroactive price on 2 %", changed, "rows", of["correct"], of["correct limit"],
        Goal(at_least="0.40"),
    )  # fmt: skip


def _ours(postmaster: int, costs: dict[str, list[Cost]]) -> tuple[list[object], int]:
    """What came of it, and how many rows the correction wrote."""
    instance.copy(READY, RUN)
    everything = partial(engine.rate_accounts, usage.account_ids())
    costs["rate"].append(measure(everything, postmaster))
    sums: list[object] = [limits.sums("billing")]
    before = _written()
    costs["rerate"].append(measure(everything, postmaster))
    if before != _written():
        raise DifferentWorkError("rating again has written rows")
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
