"""The questions about usage, in the only forms that every version answers rightly."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clusters.connectors.slurm import decode

if TYPE_CHECKING:
    from clusters.connectors.slurm.rest import Api, SlurmRest

CANARY_BEGIN, CANARY_END = (
    1200,
    300,
)  # seconds ago: short, and old enough that nothing is written there any more


def window(api: Api, *, since: int, until: int) -> dict[str, str]:
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


def canary(rest: SlurmRest, *, now: int) -> bool:
    """Whether a small window has as many rows with our flags as without: if not, the flags mean something else.

    Asked twice, should a row have come in between. Raises `ConnectorError`.
    """
    since, until = now - CANARY_BEGIN, now - CANARY_END
    return any(_agrees(rest, since, until) for _ in range(2))


def _agrees(rest: SlurmRest, since: int, until: int) -> bool:
    flagged = window(rest.api, since=since, until=until)
    plain = {name: flagged[name] for name in ("start_time", "end_time")}
    return _rows(rest, flagged) == _rows(rest, plain)


def _rows(rest: SlurmRest, params: dict[str, str]) -> int:
    value, _ = rest.read(rest.slurmdb("jobs"), decode.jobs, key="jobs", params=params)
    return len(value.jobs or ())
