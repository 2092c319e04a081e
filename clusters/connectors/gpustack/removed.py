"""Sums that an earlier reading had and that GPUStack no longer lists: they are revised to 0.

GPUStack also deletes usage as it grows old, and a new database has none. So only hours and days count in or before
which something is still listed: what is deleted for its age goes from the oldest on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime

from msgspec.structs import replace

from clusters.connectors.base import Reading, Row, UsageFact

PREFIX = "gpustack/"


class Listing:
    """What one kind of usage, "instance", "volume" or "tokens", listed in one reading; all of it, or not."""

    def __init__(self, kind: str, meters: Collection[str], reading: Reading) -> None:
        self.kind = kind
        self._meters = frozenset(meters) - {""}
        self._reading = reading
        self._keys: set[str] = set()

    def add(self, rows: Collection[Row]) -> Collection[Row]:
        """The rows themselves, as listed now."""
        self._keys.update(row.source_key for row in rows)
        return rows

    def removed(self, stored: Collection[UsageFact], *, first: datetime | None, unread: int) -> Iterator[Row]:
        """The stored sums that were not listed, as sums of 0. `unread` rows may be of any of them."""
        gone = [
            fact
            for fact in stored
            if fact.meter in self._meters and _kind(fact) == self.kind and fact.source_key not in self._keys
        ]
        if not gone:
            return
        if unread:
            self._reading.notes.append(
                f"{_sums(gone)} of {self.kind} not listed by GPUStack stay, since {unread} of the rows listed cannot "
                "be read."
            )
            return
        since = None if first is None else int(first.timestamp())
        removed = [fact for fact in gone if since is not None and (fact.started or 0) >= since]
        if kept := len(gone) - len(removed):
            self._reading.notes.append(
                f"{kept} of {_sums(gone)} of {self.kind} not listed by GPUStack stay: it lists nothing before "
                f"{'them' if first is None else f'{first:%Y-%m-%d %H:%M} UTC'}, so it may have deleted them for their "
                "age. If it corrected them, read from an earlier hour on with `pull_usage --since`."
            )
        if removed:
            self._reading.notes.append(
                f"{_sums(removed)} of {self.kind} no longer listed by GPUStack: now 0."
            )
        yield from (replace(fact, quantity=0) for fact in removed)


def _kind(fact: UsageFact) -> str:
    """Keys of long names do not say it; those of tokens are never long."""
    if not fact.source_key.startswith(PREFIX):
        return ""
    return "tokens" if fact.source_key.startswith(f"{PREFIX}tokens/") else fact.job_id.partition(" ")[0]


def _sums(facts: Collection[UsageFact]) -> str:
    return "1 sum" if len(facts) == 1 else f"{len(facts)} sums"
