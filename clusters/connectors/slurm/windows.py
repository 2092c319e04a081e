"""How long a time to ask for at once: slurmrestd's cost grows worse than linearly beyond 10,000 rows."""

from __future__ import annotations

FIRST, LEAST, MOST = 3600, 60, 86_400  # seconds
FEW, MANY = 500, 5000  # rows that ended within one window
SLOW = 30_000  # milliseconds


class Windows:
    """The length of the next window, learned from the last one.

    Rows that run or wait come in every window however short, so only rows that ended within it count.
    """

    def __init__(self) -> None:
        self.length = FIRST
        self._most = MOST

    def learn(self, *, ended: int, rows: int, spent: int) -> None:
        """After an answer: `ended` of its `rows` ended within the window; it took `spent` milliseconds."""
        shorter_helps = 2 * ended >= rows
        if ended > MANY or (spent > SLOW and ended and shorter_helps):
            self._halve()
        elif ended < FEW:
            self.length = min(2 * self.length, self._most)

    def shrink(self) -> bool:
        """After an answer that was too large or too late: ask for half; False if less makes no sense."""
        if self.length <= LEAST:
            return False
        self._halve()
        self._most = self.length
        return True

    def _halve(self) -> None:
        self.length = max(self.length // 2, LEAST)
