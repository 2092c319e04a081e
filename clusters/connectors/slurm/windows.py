"""The windows of usage to ask for: how long, and in the only form that every version answers rightly.

slurmrestd's cost grows worse than linearly beyond 10,000 rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clusters.connectors.slurm import decode

if TYPE_CHECKING:
    from clusters.connectors.slurm.rest import Api, SlurmRest

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


CANARY_BEGIN, CANARY_END = (
    1200,
    300,
)  # seconds ago: short, and old enough that nothing is written there any more


def window_params(api: Api, *, since: int, until: int) -> dict[str, str]:
    """Rows that overlap `[since, until)`, each run of a job one row, without steps.

    In newer versions `skip_steps` alone would leave out all runs but the last and cut times to the window; and
    some answer nothing at all to any flag without `scheduler_unset`. In older ones these flags are errors.
    """
    params = {"start_time": f"uts{since}", "end_time": f"uts{until}", "skip_steps": "true"}
    if api.modern:
        params |= {
            "show_duplicates": "true",
            "disable_truncate_usage_time": "true",
            "scheduler_unset": "true",
        }
    return params


def flags_agree(rest: SlurmRest, *, now: int) -> bool:
    """Whether a small window has as many rows with our flags as without: if not, the flags mean something else.

    Asked twice, should a row have come in between. Raises `ConnectorError`.
    """
    since, until = now - CANARY_BEGIN, now - CANARY_END
    return any(_agrees(rest, since, until) for _ in range(2))


def _agrees(rest: SlurmRest, since: int, until: int) -> bool:
    flagged = window_params(rest.api, since=since, until=until)
    plain = {name: flagged[name] for name in ("start_time", "end_time")}
    return _rows(rest, flagged) == _rows(rest, plain)


def _rows(rest: SlurmRest, params: dict[str, str]) -> int:
    value, _ = rest.read(rest.slurmdb("jobs"), decode.jobs, key="jobs", params=params)
    return len(value.jobs or ())
