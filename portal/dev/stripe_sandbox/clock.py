"""The sandbox's time: the machine's, moved on by tests, or standing still where a test wrote it out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

DAY = 86_400  # seconds


class Clock:
    """Seconds since 1970 in UTC. Started at a moment, it stands there until it is advanced."""

    def __init__(self, start: datetime | None = None) -> None:
        self._stands_at = None if start is None else int(start.timestamp())
        self.offset = 0  # seconds that `advance` added; kept over a restart
        self._moment: int | None = None
        self.moved: Callable[[], None] = lambda: None  # what was due by then is done here

    def now(self) -> int:
        if self._moment is not None:
            return self._moment
        return (int(time.time()) if self._stands_at is None else self._stands_at) + self.offset

    def moment(self) -> datetime:
        return datetime.fromtimestamp(self.now(), tz=UTC)

    def advance(
        self, by: timedelta | None = None, *, days: int = 0, hours: int = 0, seconds: int = 0
    ) -> None:
        """Move on; all that falls due on the way has happened, in its order, when this returns."""
        step = (by or timedelta()) + timedelta(days=days, hours=hours, seconds=seconds)
        if step < timedelta():
            raise ValueError("The clock of the sandbox only goes forward: advance by a positive time.")
        self.offset += int(step.total_seconds())
        self.moved()

    def set(self, moment: datetime) -> None:
        """Move on to that moment, which must not lie in the past."""
        self.advance(seconds=int(moment.timestamp()) - self.now())

    @contextmanager
    def at(self, moment: int) -> Iterator[None]:
        """While what was due at `moment` happens; used with the lock of the state held."""
        before, self._moment = self._moment, moment
        try:
            yield
        finally:
            self._moment = before
