"""Whether a source's clock and ours agree. Usage is told by the one and periods end by the other, so that a machine
whose clock runs ahead would believe that it has read what has not happened yet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from clusters.connectors.base import ConnectorError

SKEW = 60  # seconds by which the clocks may differ
MINUTES = "%Y-%m-%d %H:%M"  # of `utc`, where seconds do not matter
MEND = "timedatectl set-ntp true  # on both machines"


@dataclass(frozen=True, slots=True)
class Clocks:
    """What both clocks said at one moment, epoch seconds."""

    ours: int
    theirs: int

    @property
    def apart(self) -> int:
        """Seconds by which the source is ahead of us; below zero where it is behind."""
        return self.theirs - self.ours

    @property
    def agree(self) -> bool:
        return abs(self.apart) <= SKEW

    def sentence(self, source: str) -> str:
        """How they differ, with both times."""
        side = "ahead of" if self.apart > 0 else "behind"
        return (
            f"The clock of {source} says {utc(self.theirs)} and ours says {utc(self.ours)}: it is "
            f"{abs(self.apart):,} s {side} ours."
        )


def compare(clock: Callable[[], int], ask: Callable[[], int]) -> Clocks:
    """Both clocks, the other by asking it. An answer that took long is no difference. Raises what `ask` raises."""
    before = clock()
    theirs = ask()
    after = clock()
    return Clocks(min(max(theirs, before), after), theirs)


def refuse_skew(clocks: Clocks, source: str) -> None:
    """Raises `ConnectorError` where the clocks are further apart than `SKEW`."""
    if not clocks.agree:
        raise ConnectorError("clocks-differ", retry=True, difference=clocks.sentence(source))


def utc(second: int, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """`2026-10-03 07:20:00 UTC`; what no calendar holds stays a number."""
    try:
        return f"{datetime.fromtimestamp(second, UTC):{form}} UTC"
    except (ValueError, OverflowError, OSError):
        return f"second {second}"
