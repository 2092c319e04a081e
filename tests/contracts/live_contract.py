"""What every live connector must keep, whatever it reads. A source joins by a `Case` in `test_live_contract`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from clusters.connectors.base import Connector


class Source(Protocol):
    """A source at a moment, with runs that ended, one that runs, and one that it cannot tell rightly."""

    now: int
    since: int  # from here on lies all that it knows
    running: str  # key of the run that runs
    missing_key: str  # a key of the right form that it has no row of
    bad: int  # how many of its rows cannot be used

    def connector(self) -> Connector: ...

    def shuffle(self) -> None:
        """The same rows in another order."""

    def end(self) -> None:
        """The run that runs ends now."""

    def fail(self) -> None:
        """From now on, the question for usage is refused in the middle of a pass, for a while."""

    def heal(self) -> None: ...


@dataclass(frozen=True)
class Case:
    name: str
    source: Callable[[], AbstractContextManager[Source]]
