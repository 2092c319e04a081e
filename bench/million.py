"""The works that share one large ledger: a million jobs of a thousand tenants."""

from __future__ import annotations

from collections.abc import Iterator

from bench import instance
from bench.result import Result
from bench.scale import Scale

NAMES = ("close", "dashboard", "page", "web", "worker", "growpage", "busy", "csv")


def works(scale: Scale, postmaster: int, wanted: set[str]) -> Iterator[Result]:
    """Closing comes first: the pages then show its invoices."""
    from bench import closing, export, pages, worker

    if not wanted & set(NAMES):
        return
    closing.build(scale)
    yield closing.close(scale, postmaster)
    if "dashboard" in wanted:
        yield pages.dashboard(scale, postmaster)
    if "csv" in wanted:
        yield export.csv(scale, postmaster)
    if "worker" in wanted:
        yield worker.memory()
    if wanted & {"page", "web", "growpage", "busy"}:
        yield from pages.works(scale, postmaster, wanted)
    instance.drop(closing.RUN, closing.READY)
