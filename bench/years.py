"""Three years of a site: ten million jobs of a thousand tenants, and the overview among them. Takes half an hour."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

from bench import closing, instance, pages
from bench.result import Result
from bench.scale import Scale
from portal.core.tenants.models import Tenant

NAME = "years"
DATABASE = "bench_years"
JOBS = 10_000_000
MONTHS = [datetime(year, month, 1, tzinfo=UTC) for year in (2023, 2024, 2025) for month in range(1, 13)]
BORDERS = [*MONTHS, datetime(2026, 1, 1, tzinfo=UTC)]


def works(scale: Scale, postmaster: int, names: set[str]) -> Iterator[Result]:
    """The overview of the last of 36 closed months, for an ordinary tenant. Only where it is asked for by name."""
    if NAME not in names:
        return
    days = (BORDERS[-1] - BORDERS[0]).days
    closing.build(scale, name=DATABASE, count=scale.of(JOBS), borders=BORDERS, days=days)
    for start, _ in itertools.pairwise(BORDERS):
        closing.everybody(start.year, start.month)
    tenant = Tenant.objects.order_by("pk")[1]
    pages.collect()
    with pages.ours(tenant, DATABASE) as web, pages.floor(after=DATABASE) as least:
        address = f"/t/{tenant.slug}/?period={MONTHS[-1]:%Y-%m-%d}"
        result = pages.page(web, address, least, postmaster)
    yield replace(result, name=NAME, title=f"{result.title}, of ten million jobs")
    instance.drop(DATABASE)
