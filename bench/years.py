"""Three years of a site: ten million jobs of a thousand tenants in 36 closed months, and a year of running pods.

Takes an hour at full size; `--part 100` shows in minutes that everything runs.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal

from django.db import connection

from bench import (
    api,
    closing,
    growing,
    instance,
    lab_life,
    pages,
    served,
    sizes,
    world,
    years_pages,
)
from bench.result import DifferentWorkError, Figure, Result
from bench.scale import Scale
from billing.catalog import plans
from billing.models import Price
from billing.proof import checks, months
from billing.queries.usage_series import Grouping, Interval, usage_series
from billing.rules.meters import PerUnit
from portal.core.tenants.models import Tenant
from portal.core.tenants.scope import tenant_scope

NAME = "years"
DATABASE = "bench_years"
JOBS, MORE_JOBS = 10_000_000, 100_000_000
MONTHS = [datetime(year, month, 1, tzinfo=UTC) for year in (2023, 2024, 2025) for month in range(1, 13)]
BORDERS = [*MONTHS, datetime(2026, 1, 1, tzinfo=UTC)]
BEYOND = datetime(2026, 2, 1, tzinfo=UTC)  # the last jobs end in a month that is open
YEAR = date(2025, 1, 1), date(2026, 1, 1)
API = ("apilist", "apideep", "apiusage")
GB = 1_000_000_000


def works(scale: Scale, postmaster: int, names: set[str]) -> Iterator[Result]:
    """Every page after 36 closed months, and the ledger's own figures. Only where it is asked for by name."""
    if NAME not in names:
        return
    days, jobs = (BORDERS[-1] - BORDERS[0]).days, scale.of(JOBS)
    _show(f"{jobs:,} jobs: records are written and rated.")
    closing.build(scale, name=DATABASE, count=jobs, borders=[*BORDERS, BEYOND], days=days)
    size = sum(sizes.sizes().values()) / jobs
    _show("Months are closed.")
    for start, _ in itertools.pairwise(BORDERS):
        closing.everybody(start.year, start.month)
    largest, tenant = Tenant.objects.order_by("pk")[:2]
    before = [*_shown(_ledger(jobs, size, largest)), *_shown([_year(largest)])]
    pages.collect()
    people = lab_life.settle([largest, tenant], since=BORDERS[-1], moment=world.MOMENT)
    cookie = lab_life.cookie_of(people.owner)
    with (
        served.site(cookie, DATABASE_URL=served.url_of(DATABASE)) as web,
        pages.floor(after=DATABASE) as least,
    ):
        address = f"/t/{tenant.slug}/?period={MONTHS[-1]:%Y-%m-%d}"
        result = pages.page(web, address, least, postmaster)
        sites = years_pages.Sites(web, least, postmaster)
        before += _shown(years_pages.figures(sites, people, largest, tenant, MONTHS[-1].date()))
    with api.asking(DATABASE, postmaster) as client:
        yield from (replace(api.WORKS[name](client), name=f"years{name}") for name in API)
    before += _shown(_price())
    proofs = _shown(_proofs(jobs))
    figures = (*before, *proofs, *_computed(jobs, size, proofs[2]))
    yield replace(result, name=NAME, title=f"{result.title}, of {jobs:,} jobs", figures=figures)
    instance.drop(DATABASE)
    yield growing.year(scale, postmaster)


def _shown(figures: Iterable[Figure]) -> tuple[Figure, ...]:
    """As soon as they are measured: what comes after them takes long."""
    shown = []
    for figure in figures:
        _show(figure.text())
        shown.append(figure)
    return tuple(shown)


def _show(text: str) -> None:
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {text}\n")


def _ledger(jobs: int, size: float, largest: Tenant) -> tuple[Figure, ...]:
    """Of a tenant with ten jobs a day nearly every job is a row of daily usage: no two are of one series."""
    its_jobs, its_days = (sizes.rows(table, largest) for table in ("billing_ratedjob", "billing_dailyusage"))
    return (
        Figure("bytes a job, as the limit's statements store it", size),
        Figure("rows a job of daily usage", sizes.rows("billing_dailyusage") / jobs),
        Figure("rows a job of daily usage, of the largest tenant", its_days / its_jobs, 0.15),
    )


def _year(largest: Tenant) -> Figure:
    grouping = (Grouping.USER, Grouping.GPU_MODEL, Grouping.STATE)

    def read() -> None:
        with tenant_scope(largest):
            usage_series(largest, first=YEAR[0], end=YEAR[1], interval=Interval.MONTH, grouping=grouping)

    return Figure("a year of the largest tenant by month in three groups, ms", _seconds(read) * 1000, 500)


def _proofs(jobs: int) -> tuple[Figure, ...]:
    """In full, which keeps the proof of each month; then as operators prove, with all months closed and proved."""
    began = time.perf_counter()
    _show("All months are proved.")
    proof = checks.prove(full=True, moment=world.MOMENT)
    whole = time.perf_counter() - began
    if not proof.holds:
        raise DifferentWorkError(f"{[check for check in proof.checks if check.broken]}")
    began = time.perf_counter()
    again = checks.prove(moment=world.MOMENT)
    since = time.perf_counter() - began
    if again != replace(proof, recomputed=[]):
        raise DifferentWorkError("The proof of what was written since is another one than that in full.")
    month = _seconds(lambda: months.prove_month(MONTHS[0].date(), moment=world.MOMENT))
    return (
        Figure("prove, with nothing written to 36 closed months since, s", since, 10),
        Figure("the same, ms a closed month", since / len(MONTHS) * 1000),
        Figure("prove --full, of all time, s", whole),
        Figure("prove --full, of all time, µs a job", whole / jobs * 1_000_000),
        Figure("prove --full, in times of prove", whole / since),
        Figure("the nightly proof of one month, s", month),
    )


def _price() -> tuple[Figure, ...]:
    """A price that half of all jobs have, say, comes to something else from its first day on."""
    price = Price.objects.order_by("pk")[0]
    before = _written()
    model = PerUnit(Decimal("1.5"))
    took = _seconds(lambda: plans.correct_price(price=price, model=model, reason="Agreed on."))
    return (
        Figure("a new unit price with effect for the past, s", took, 60),
        Figure("a new unit price with effect for the past, GB of WAL", (_written() - before) / GB, 1),
    )


def _computed(jobs: int, size: float, proof: Figure) -> tuple[Figure, ...]:
    """Computed, not measured: ten times as many jobs at these bytes and seconds."""
    more = f"computed for {MORE_JOBS:,} jobs from what {jobs:,} took"
    return (
        Figure(f"{more}: GB", size * MORE_JOBS / GB),
        Figure(f"{more}: prove --full, h", proof.value / jobs * MORE_JOBS / 3600),
    )


def _written() -> int:
    """Bytes of the write-ahead log so far."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_current_wal_lsn() - '0/0'")
        return int(cursor.fetchone()[0])


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
