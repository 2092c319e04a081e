"""What whoever acts on a scheduler has: the methods, the refusals, and a job as it is seen. No Django."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from clusters.connectors.base import ConnectorError

Limits = Mapping[str, Any]
"""By name the limits of an account: {"GrpTRES=gres/gpu": 8}. A name that is not there has no limit."""


class ActRefusedError(ConnectorError):
    """The scheduler cannot or will not do it; the message says why and what to do instead. Nothing was changed."""


class NoAccountError(ActRefusedError):
    """The scheduler has no such account."""


class NotStuckError(ConnectorError):
    """It was asked for and is not so. The message says what is there instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSeen:
    """A job, or the waiting tasks of an array under one number, as the scheduler has it."""

    id: int
    submitted: int  # epoch second; ids are used again after a controller lost its state
    account: str
    user: str
    name: str
    states: frozenset[str]  # {"PENDING"}, {"CANCELLED", "COMPLETING"}
    reason: str
    tasks: str = ""  # "0-3%2": the waiting tasks of an array
    gpu: bool = True  # it holds GPUs, or asks for some

    @property
    def key(self) -> str:
        """As the usage records have it: 17@1772000000."""
        return f"{self.id}@{self.submitted}"

    @property
    def waits(self) -> bool:
        return "PENDING" in self.states

    @property
    def over(self) -> bool:
        return bool(self.states & _ENDED) and "PENDING" not in self.states

    @property
    def held(self) -> bool:
        return self.reason.startswith("JobHeld") or self.reason.lower() in _REQUEUED_HELD

    def __str__(self) -> str:
        tasks = f" (tasks {self.tasks})" if self.tasks else ""
        return f"job {self.id}{tasks} of {self.user} in {self.account}"


_REQUEUED_HELD = frozenset({"job_requeued_in_held_state", "job requeued in held state"})
"""How Slurm says that a job was held as it was requeued."""
_ENDED = frozenset(
    {
        *("COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "DEADLINE"),
        *("OUT_OF_MEMORY", "COMPLETING"),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What keeps the account from starting, as limits by name; `notes` in sentences what it does not do."""

    limits: Limits
    notes: tuple[str, ...] = ()
    runs: str = ""  # what becomes of running jobs, where they do not run on


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """What an account may hold at once: GPUs by model, "" being any, and jobs that run; None: as many as there are."""

    gpus: Mapping[str, int]
    jobs: int | None = None


class Acts(Protocol):
    """Every method raises `ConnectorError`; with `retry` it is not known whether the act was done."""

    scheduler: str  # its name in sentences
    whom: str  # of {account}: for whom its limits hold
    runs: str  # what runs on
    in_parts: bool  # limits lie in several objects, so that a write can be cut off in the middle

    def close(self) -> None:
        """Close what is kept open. A second call does nothing."""

    def jobs(self, *, account: str = "", user: str = "") -> list[JobSeen]: ...

    def job(self, number: int) -> list[JobSeen]: ...

    def cancel(self, number: int) -> list[JobSeen]: ...

    def requeue(self, number: int) -> list[JobSeen]:
        """Take a running job from its GPUs and keep it waiting, held, as if it had not begun."""

    def refuse_requeues(self) -> None:
        """Raises `ActRefusedError` where running jobs cannot be requeued."""

    def hold(self, number: int) -> list[JobSeen]: ...

    def release(self, number: int) -> list[JobSeen]: ...

    def refuse_updates(self) -> None:
        """Raises `ActRefusedError` where jobs cannot be held or released."""

    def limits(self, account: str, user: str = "") -> dict[str, Any]:
        """The limits of the account, or of a user in it. Raises NoAccountError."""

    def below(self, account: str) -> set[str]:
        """The other accounts for which its limits hold too."""

    def demand(self, account: str, *, now: Limits, submits: bool, drains: bool = False) -> Demand:
        """What has to stand so that no GPU job of the account starts; `submits`: nor can be submitted.

        `drains`: and all that runs is ended. Raises ActRefusedError where jobs are ended one by one.
        """

    def ceiling(self, account: str, ceiling: Ceiling) -> Demand:
        """What has to stand so that the account holds no more at once. Raises where the scheduler has no such limit."""

    def restored(self, value: Any) -> Any:
        """What a limit of this value has once our block is gone; None: it has none."""

    def set_limits(self, account: str, target: Limits, *, before: Limits, user: str = "") -> dict[str, Any]:
        """Bring the limits of the account, or of a user in it, from `before` to just `target`; what they are then."""

    def refuse_without_effect(self, account: str, limits: Limits) -> None:
        """Raises `NotStuckError` where limits that are written are not obeyed yet."""


def differences(before: Limits, after: Limits) -> list[str]:
    """`GrpTRES=gres/gpu: 8 → none` for each limit that differs, by name."""
    return [
        f"{key}: {before.get(key, 'none')} → {after.get(key, 'none')}"
        for key in sorted({*before, *after})
        if before.get(key) != after.get(key)
    ]
