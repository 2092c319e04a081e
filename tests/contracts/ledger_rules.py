"""Facts merged by key the way the ledger does it, without a database."""

from __future__ import annotations

from collections.abc import Iterable

from clusters.connectors.base import BusyHour, Row, UsageFact


class Merged:
    """The last word on each key. `revisions` counts the facts that were new or changed what is billed."""

    def __init__(self) -> None:
        self.facts: dict[str, UsageFact] = {}
        self.busy: dict[tuple[str, int], BusyHour] = {}
        self.revisions = 0

    def take(self, rows: Iterable[Row]) -> None:
        """An open fact never reopens an ended one, and an earlier sight of a running one is old news."""
        for row in rows:
            if isinstance(row, BusyHour):  # kept beside the facts, never a revision of one
                self.busy[row.source_key, row.hour] = row
                continue
            assert isinstance(row, UsageFact), row
            existing = self.facts.get(row.source_key)
            if existing is None:
                self.revisions += 1
            elif _is_old_news(existing, row):
                continue
            elif _billed(existing) != _billed(row):
                self.revisions += 1
            self.facts[row.source_key] = row

    @property
    def open_keys(self) -> list[str]:
        return sorted(key for key, fact in self.facts.items() if fact.ended is None)


def _is_old_news(existing: UsageFact, row: UsageFact) -> bool:
    if existing.ended is not None:
        return row.ended is None
    return row.ended is None and (existing.seen_until or 0) > (row.seen_until or 0)


def _billed(fact: UsageFact) -> tuple[object, ...]:
    shape = (fact.account, fact.gpus, fact.gpu_model, fact.mig_profile, fact.gpu_share, fact.queue)
    return (*shape, fact.started, fact.ended, fact.state)
