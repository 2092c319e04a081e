"""A plan tried on twelve months, beside rating the same usage anew."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial

from bench import instance, jobs, world
from bench.meter import Cost, measure, middle
from bench.result import DifferentWorkError, Goal, Result
from bench.scale import Scale
from billing.models import Plan, PlanVersion, Price
from billing.rating import engine
from billing.simulation import what_if
from clusters import usage
from portal.core.tenants.models import Tenant

ACCOUNTS = 50
RUN, READY = "bench_run", "bench_ready"
BORDERS = [datetime(2025 + month // 12, month % 12 + 1, 1, tzinfo=UTC) for month in range(13)]
MONTHS = ((2025, 1), (2025, 12))
LAST = 8  # days at the end of the year in which nothing begins, so that all ends in it


def works(scale: Scale, postmaster: int, names: set[str]) -> Iterator[Result]:
    if "whatif" not in names:
        return
    count = scale.of(300_000)
    instance.copy(instance.EMPTY, READY)
    cluster = world.build(ACCOUNTS, borders=BORDERS)
    first = int(BORDERS[0].timestamp())
    world.load_records(cluster, jobs.jobs(count, accounts=ACCOUNTS, days=365 - LAST, first=first))
    tried: list[Cost] = []
    rated: list[Cost] = []
    for _ in range(scale.rounds):
        instance.copy(READY, RUN)
        rated.append(measure(partial(engine.rate_accounts, usage.account_ids()), postmaster))
        tried.append(measure(try_all, postmaster))
    instance.drop(RUN, READY)
    title = "a plan tried on 12 months, beside rating them"
    yield Result("whatif", title, count, "usage", middle(tried), middle(rated), Goal(at_most="1.0"))


def try_all() -> None:
    """The plan that everybody is on comes to what they owe."""
    comparisons = what_if.simulate_plan(
        tenants=Tenant.objects.order_by("slug"), months=MONTHS, draft=partial(_same, "standard")
    )
    if not all(comparison.now and comparison.now == comparison.tried for comparison in comparisons):
        raise DifferentWorkError("the plan in force comes to something else than what is owed")


def _same(plan: str, name: str) -> None:
    """A plan of that name that says what the other one does."""
    draft = Plan.objects.create(name=name, currency="USD")
    for version in PlanVersion.objects.filter(plan__name=plan):
        prices = list(version.prices.order_by("position"))
        version.pk, version.plan = None, draft
        version.save(force_insert=True)
        for price in prices:
            price.pk, price.version = None, version
        Price.objects.bulk_create(prices)
