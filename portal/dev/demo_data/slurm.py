"""The Slurm of atlas, as far as it blocks accounts: made up like its jobs, and obeying at once."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from billing.dunning import scheduler_blocks
from clusters.connectors.acts import JobSeen
from clusters.connectors.slurm.acts import STARTS, SlurmActs
from clusters.enforcement_plan import SchedulerPort


class Acts(SlurmActs):
    """Accounts without limits and without jobs that still wait."""

    def __init__(self) -> None:
        self._starts = (STARTS,)
        self._limits: dict[tuple[str, str], dict[str, int]] = {}

    def close(self) -> None:
        pass

    def jobs(self, *, account: str = "", user: str = "") -> list[JobSeen]:
        del account, user
        return []

    def limits(self, account: str, user: str = "") -> dict[str, int]:
        return self._limits.get((account, user), {})

    def below(self, account: str) -> set[str]:
        del account
        return set()

    def set_limits(
        self, account: str, target: Mapping[str, Any], *, before: Mapping[str, Any], user: str = ""
    ) -> dict[str, int]:
        del before
        self._limits[account, user] = dict(target)
        return self._limits[account, user]


def block_suspended(*, moment: datetime) -> None:
    """Whoever is suspended; again, nothing. Raises RuntimeError for what could not be blocked."""
    done = scheduler_blocks.enforce_blocks(
        moment=moment, opens=lambda cluster: SchedulerPort(cluster, Acts())
    )
    if done.troubles:
        raise RuntimeError("; ".join(done.troubles))
