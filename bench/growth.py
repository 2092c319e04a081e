"""Ten times the rows: what a batch costs then, what a close does, and a page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from bench import closing, instance, intake, jobs, pages, world
from bench.result import DifferentWorkError, Goal, Result, Side, in_turn
from bench.scale import Scale
from bench.served import Site
from billing.models import Invoice, RatedJob
from billing.rating import engine
from clusters import usage
from portal.core.tenants.models import Tenant

RUN, READY = "bench_run", "bench_ready"
LARGE, TENTH = "bench_large", "bench_tenth"
LEDGER, TENTH_LEDGER, TENTH_READY = "bench_ledger", "bench_tenth_ledger", "bench_tenth_ready"
ACCOUNTS = 40
GROWTH = 20 * 1024  # KiB that ten times the rows may add to what the process holds


def works(scale: Scale, postmaster: int, names: set[str]) -> Iterator[Result]:
    """Taking in a file, beside a tenth of it: the batches stay as large, so it is ten times as many."""
    if "grow" not in names:
        return
    instance.copy(instance.EMPTY, READY)
    world.build(ACCOUNTS)
    files = []
    for count in (scale.of(100_000), scale.of(10_000)):
        file = instance.HOME / f"{count}.sacct"
        file.write_text("".join(jobs.sacct_lines(jobs.jobs(count, accounts=ACCOUNTS, days=45))))
        files.append(file)
    fresh = partial(instance.copy, READY, RUN)
    large, small = (Side(partial(intake.ingest_file, file), fresh) for file in files)
    cost, baseline = in_turn(postmaster, large, small, rounds=scale.rounds)
    title = "taking in a file, beside a tenth of it"
    yield Result("grow", title, scale.of(100_000), "jobs", cost, baseline, Goal(at_most="10.5"))
    instance.drop(RUN, READY)


def rate(scale: Scale, postmaster: int) -> Result:
    """The jobs that are closed later, beside a tenth of them: of as many accounts, in the same month."""
    count, tenth = scale.of(1_000_000), scale.of(100_000)
    closing.ledger(scale, name=TENTH_LEDGER, count=tenth)
    sides = [
        Side(_rate, partial(instance.copy, ledger, run), partial(_unrated, records))
        for ledger, run, records in ((LEDGER, LARGE, count), (TENTH_LEDGER, TENTH, tenth))
    ]
    cost, baseline = in_turn(postmaster, *sides, rounds=scale.rounds)
    instance.drop(LARGE, TENTH, TENTH_LEDGER)
    title = "rating, beside a tenth of the jobs"
    return _ten_times(Result("growrate", title, count, "usage", cost, baseline, Goal(at_most="10.5")))


def close(scale: Scale, postmaster: int) -> Result:
    """A month in which each tenant has ten times as many jobs: a close reads totals, of which there are as many."""
    tenants = scale.of(1_000)
    sides = [
        Side(closing.everybody, partial(instance.copy, ready, run), partial(_unbilled, tenants))
        for ready, run in ((closing.READY, LARGE), (TENTH_READY, TENTH))
    ]
    cost, baseline = in_turn(postmaster, *sides, rounds=scale.rounds)
    instance.drop(LARGE, TENTH)
    instance.use(closing.RUN)
    title = "a month of as many tenants, beside a tenth of the jobs"
    return _ten_times(Result("growclose", title, tenants, "tenants", cost, baseline, Goal(at_most="1.2")))


def page(scale: Scale, web: Site, address: str, postmaster: int) -> Result:
    """The page of a tenant with a month of ten times as many jobs, among ten times as many; p95 over HTTP."""
    instance.copy(TENTH_READY, TENTH)
    closing.everybody()
    tenant = Tenant.objects.get(slug=address.split("/")[2])
    try:
        with pages.ours(tenant, TENTH) as before:
            cost, baseline = pages.in_turn(web, address, before, address, postmaster)
    finally:
        instance.use(closing.RUN)
        instance.drop(TENTH)
        instance.use(closing.RUN)
    title = "the overview over HTTP, p95, beside a tenth of the jobs"
    return Result("growpage", title, 1, "pages", cost, baseline, Goal(at_most="1.2"), by_wall=True)


def _ten_times(result: Result) -> Result:
    """With what ten times the jobs add to the process, which is to hold no more of them at a time."""
    grown = max(result.ours.peak - result.limit.peak, 0)
    return replace(result, memory=(grown, GROWTH))


def _rate() -> None:
    engine.rate_accounts(usage.account_ids())


def _unrated(records: int) -> int:
    if missing := records - RatedJob.objects.count():
        raise DifferentWorkError(f"{missing} of {records} jobs are not rated")
    return 0


def _unbilled(tenants: int) -> int:
    if missing := tenants - Invoice.objects.filter(number__isnull=False).count():
        raise DifferentWorkError(f"{missing} of {tenants} tenants have no invoice")
    return 0
