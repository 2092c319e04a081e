"""Three years of a site: ten million jobs of a thousand tenants in 36 closed months, of which 33 are sealed and
dropped, and a year of running pods. And a slice of a site ten times as large.

Takes two hours at full size; `--part 100` shows in minutes that everything runs.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial

from django.conf import settings
from django.db import connection
from django.db.models import Q, Sum

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
from bench.meter import measure
from bench.result import DifferentWorkError, Figure, Result
from bench.scale import Scale
from bench.sealing import MILLION, MOST_BYTES, MOST_PROOF
from billing.catalog import plans
from billing.models import Invoice, Payment, Price, SealedFile
from billing.proof import checks, months
from billing.queries.usage_series import Grouping, Interval, usage_series
from billing.rules.meters import PerUnit
from billing.sealed_months import drop, seal, verify
from portal.core.tenants.models import Tenant
from portal.core.tenants.scope import tenant_scope

DATABASE = "bench_years"
MORE_JOBS = 100_000_000
MONTHS = [datetime(year, month, 1, tzinfo=UTC) for year in (2023, 2024, 2025) for month in range(1, 13)]
BORDERS = [*MONTHS, datetime(2026, 1, 1, tzinfo=UTC)]
BEYOND = datetime(2026, 2, 1, tzinfo=UTC)  # the last jobs end in a month that is open
FEW = 9  # requests of a page that is read from files, and of each page where the bench is smaller
YEAR = date(2025, 1, 1), date(2026, 1, 1)
API = ("apilist", "apideep", "apiusage")
GB = 1_000_000_000


@dataclass(frozen=True)
class Past:
    """The last closed months of a site and the jobs in them; the oldest are sealed and dropped."""

    jobs: int
    months: int
    dropped: int

    @property
    def borders(self) -> list[datetime]:
        return BORDERS[-1 - self.months :]

    @property
    def starts(self) -> list[datetime]:
        return self.borders[:-1]


PASTS = {
    "years": Past(jobs=10_000_000, months=36, dropped=33),
    "slice": Past(jobs=30_000_000, months=11, dropped=1),  # each month as in three years with `MORE_JOBS`
}


def works(scale: Scale, postmaster: int, names: set[str]) -> Iterator[Result]:
    """Every page after closed months, and the ledger's own figures. Only where it is asked for by name."""
    for name, full in PASTS.items():
        if name in names:
            past = replace(full, jobs=scale.of(full.jobs))
            build(scale, past)
            yield from figures(name, past, postmaster, is_full=scale.is_full)
            instance.drop(DATABASE)
    if "years" in names:
        yield growing.year(scale, postmaster)


def build(scale: Scale, past: Past) -> None:
    """All jobs, rated, in closed months."""
    _show(f"{past.jobs:,} jobs: records are written and rated.")
    borders = past.borders
    days = (borders[-1] - borders[0]).days
    closing.build(scale, name=DATABASE, count=past.jobs, borders=[*borders, BEYOND], days=days)
    _show("Months are closed.")
    for start in past.starts:
        closing.everybody(start.year, start.month)
    pay()


def pay() -> None:
    """Of the invoices before the last month's one in fifty is overdue; all others were paid when they were due."""
    bills = Invoice.objects.filter(period_start__lt=MONTHS[-1], total__gt=0).order_by("pk")
    columns = ("pk", "tenant_id", "total", "due_on", "number")
    payments = [
        Payment(
            invoice_id=pk,
            tenant_id=tenant,
            amount=total,
            received_on=due,
            reference=number,
            recorded_by="bank",
        )
        for place, (pk, tenant, total, due, number) in enumerate(bills.values_list(*columns))
        if place % 50
    ]
    Payment.objects.bulk_create(payments, batch_size=1_000)


def figures(name: str, past: Past, postmaster: int, *, is_full: bool) -> Iterator[Result]:
    """Of the database that was built: what pages and corrections take is measured once old months are in files."""
    whole = sum(sizes.sizes().values())
    largest, tenant = Tenant.objects.order_by("pk")[:2]
    shown = [*_shown(_ledger(past.jobs, whole / past.jobs, largest)), *_shown(_proved(past))]
    shown += _shown(_sealed(past, postmaster))
    shown += _shown([_year(largest)])
    pages.collect()
    people = lab_life.settle([largest, tenant], since=BORDERS[-1], moment=world.MOMENT)
    cookie = lab_life.cookie_of(people.owner)
    with (
        served.site(cookie, DATABASE_URL=served.url_of(DATABASE)) as web,
        pages.floor(after=DATABASE) as least,
    ):
        address = f"/t/{tenant.slug}/?period={MONTHS[-1]:%Y-%m-%d}"
        result = pages.page(web, address, least, postmaster)
        sites = years_pages.Sites(web, least, postmaster, requests=years_pages.REQUESTS if is_full else FEW)
        shown += _shown(years_pages.figures(sites, people, largest, tenant, MONTHS[-1].date()))
        sites = replace(sites, requests=FEW)
        shown += _shown(years_pages.from_files(sites, people, largest, tenant, past.starts[0].date()))
    with api.asking(DATABASE, postmaster) as client:
        yield from (replace(api.WORKS[work](client), name=f"{name}{work}") for work in API)
    shown += _shown(_price())
    shown += _shown(_proved_since())
    yield replace(result, name=name, title=f"{result.title}, of {past.jobs:,} jobs", figures=tuple(shown))


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


def _proved(past: Past) -> Iterator[Figure]:
    """In full, which keeps the proof of each month."""
    began = time.perf_counter()
    _show("All months are proved.")
    proof = checks.prove(full=True, moment=world.MOMENT)
    whole = time.perf_counter() - began
    if not proof.holds:
        raise DifferentWorkError(f"{[check for check in proof.checks if check.broken]}")
    month = _seconds(lambda: months.prove_month(past.starts[0].date(), moment=world.MOMENT))
    yield Figure("prove --full, of all time, s", whole)
    yield Figure("prove --full, of all time, µs a job", whole / past.jobs * MILLION)
    yield Figure(f"prove --full, computed for {MORE_JOBS:,} jobs, h", whole / past.jobs * MORE_JOBS / 3600)
    yield Figure("the nightly proof of one month, s", month)


def _proved_since() -> Iterator[Figure]:
    """As operators prove, with all months closed and proved, and most of them in files."""
    checks.prove(moment=world.MOMENT)
    proofs = []
    since = _seconds(lambda: proofs.append(checks.prove(moment=world.MOMENT)))
    if proofs[0].recomputed or not proofs[0].holds:
        raise DifferentWorkError(f"{[check for check in proofs[0].checks if check.broken]}")
    yield Figure("prove, with nothing written to closed months since, s", since, 10)


def _sealed(past: Past, postmaster: int) -> Iterator[Figure]:
    """The oldest months become files, and their rows are dropped, for which the next month is sealed, too."""
    settings.CLUSTERTAB_SEALED_MONTHS = directory = instance.HOME / "sealed"
    os.environ["SEALED_MONTHS_DIRECTORY"] = str(directory)  # of the sites that are asked then
    old = [start.date() for start in past.starts[: past.dropped + 1]]
    _show(f"{len(old)} months are sealed, and {past.dropped} of them dropped.")
    sealing = [partial(seal.seal_month, month=month, moment=world.MOMENT, quiet_months=0) for month in old]
    drops = partial(drop.drop_month, moment=world.MOMENT, all_processes_replaced=True)
    dropping = [partial(drops, month=month) for month in old[: past.dropped]]
    to_seal, to_drop = (sum(measure(work, postmaster).cpu for work in works) for works in (sealing, dropping))
    files = SealedFile.objects.aggregate(bytes=Sum("bytes"), jobs=Sum("rows", filter=Q(kind="records")))
    proof = measure(verify.prove_files, postmaster)
    sealed, left = files["jobs"], sum(sizes.sizes().values())
    yield Figure("bytes a job in files", files["bytes"] / sealed, MOST_BYTES)
    yield Figure("bytes a job, in tables and files", (left + files["bytes"]) / past.jobs)
    yield Figure(
        f"the same of {MORE_JOBS:,} jobs, computed, GB",
        (left + files["bytes"]) / past.jobs * MORE_JOBS / GB,
    )
    yield Figure("CPU of the proof of a million jobs in files, s", proof.cpu / sealed * MILLION, MOST_PROOF)
    yield Figure("CPU of sealing a million jobs, s", to_seal / sealed * MILLION)
    yield Figure("CPU of dropping a million jobs, s", to_drop / sealed * MILLION)


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


def _written() -> int:
    """Bytes of the write-ahead log so far."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_current_wal_lsn() - '0/0'")
        return int(cursor.fetchone()[0])


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
