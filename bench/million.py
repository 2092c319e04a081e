"""The works that share one large ledger: a million jobs of a thousand tenants."""

from __future__ import annotations

from collections.abc import Iterator

from bench import instance
from bench.result import Result
from bench.scale import Scale

CLOSED = ("close", "growclose", "dashboard", "page", "paint", "web", "worker", "growpage", "busy", "csv")
NAMES = ("growrate", *CLOSED)


def works(scale: Scale, postmaster: int, names: set[str]) -> Iterator[Result]:
    """The jobs are made once. Closing comes before the pages, which then show its invoices."""
    from bench import closing, growth

    if not names & set(NAMES):
        return
    closing.ledger(scale, name=growth.LEDGER)
    if "growrate" in names:
        yield growth.rate(scale, postmaster)
    if names & set(CLOSED):
        instance.copy(growth.LEDGER, closing.READY)
        closing.rate()
        yield from _closed(scale, postmaster, names)
    instance.drop(growth.LEDGER)


def _closed(scale: Scale, postmaster: int, names: set[str]) -> Iterator[Result]:
    """Those that need the month rated, and closed."""
    from bench import closing, export, growth, pages, worker

    if names & {"growclose", "growpage"}:
        closing.build(scale, name=growth.TENTH_READY, count=scale.of(100_000))
    yield closing.close(scale, postmaster)
    if "growclose" in names:
        yield growth.close(scale, postmaster)
    if "dashboard" in names:
        yield pages.dashboard(scale, postmaster)
    if "csv" in names:
        yield export.csv(scale, postmaster)
    if "worker" in names:
        yield worker.memory()
    if names & {"page", "paint", "web", "growpage", "busy"}:
        yield from pages.works(scale, postmaster, names)
    instance.drop(closing.RUN, closing.READY, growth.TENTH_READY)
