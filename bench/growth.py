"""Ten times the rows: what a batch costs then, and what a page does."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from bench import closing, instance, intake, jobs, pages, world
from bench.result import Goal, Result, Side, in_turn
from bench.scale import Scale
from bench.served import Site
from portal.tenants.models import Tenant

RUN, READY, TENTH = "bench_run", "bench_ready", "bench_tenth"
ACCOUNTS = 40


def works(scale: Scale, postmaster: int, wanted: set[str]) -> Iterator[Result]:
    """Taking in a file, beside a tenth of it: the batches stay as large, so it is ten times as many."""
    if "grow" not in wanted:
        return
    instance.copy(instance.EMPTY, READY)
    world.build(ACCOUNTS)
    files = []
    for count in (scale.of(100_000), scale.of(10_000)):
        file = instance.HOME / f"{count}.sacct"
        file.write_text("".join(jobs.sacct_lines(jobs.jobs(count, accounts=ACCOUNTS, days=45))))
        files.append(file)
    fresh = partial(instance.copy, READY, RUN)
    large, small = (Side(partial(intake.take_in, file), fresh) for file in files)
    cost, beside = in_turn(postmaster, large, small, rounds=scale.rounds)
    title = "taking in a file, beside a tenth of it"
    yield Result("grow", title, scale.of(100_000), "jobs", cost, beside, Goal(at_most="10.5"))
    instance.drop(RUN, READY)


def page(scale: Scale, web: Site, address: str, postmaster: int) -> Result:
    """The page of a tenant with a month of ten times as many jobs, among ten times as many; p95 over HTTP."""
    closing.build(scale, name=TENTH, count=scale.of(100_000))
    closing.everybody()
    tenant = Tenant.objects.get(slug=address.split("/")[2])
    try:
        with pages.ours(tenant, TENTH) as before:
            cost, beside = pages.in_turn(web, address, before, address, postmaster)
    finally:
        instance.use(closing.RUN)
        instance.drop(TENTH)
        instance.use(closing.RUN)
    title = "the overview over HTTP, p95, beside a tenth of the jobs"
    return Result("growpage", title, 1, "pages", cost, beside, Goal(at_most="1.2"), by_wall=True)
