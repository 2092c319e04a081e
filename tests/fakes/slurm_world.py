"""What a Slurm remembers, for the stand-in: jobs, holds and the limits of associations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

FINISHED = {"COMPLETED", "CANCELLED", "FAILED", "TIMEOUT"}
TRES_LIMITS = (
    "total",
    "group.minutes",
    "group.active",
    "minutes.total",
    "minutes.per.job",
    "per.job",
    "per.node",
)
INHERITED = {"minutes.per.job", "per.job", "per.node"}  # a child without its own is shown its parent's
JOB_LIMITS = (
    *("per.count", "per.accruing", "per.submitted", "per.wall_clock"),
    *("active", "accruing", "total"),
)
CLEARED = 2**64 - 1

DENIED = (2002, "Access/permission denied")
NO_SUCH_JOB = (2017, "Invalid job id specified")
ALREADY_DONE = (2021, "Job/step already completing or completed")
FINISHED_JOB = (2084, "Job has already finished")
NOT_WHOLE = (2108, "Operation not permitted on individual component of heterogeneous job")
WRONG_USER = (2010, "Invalid user id")


class SlurmRefusalError(Exception):
    """Slurm's own number and words."""

    def __init__(self, number: int, words: str) -> None:
        super().__init__(words)
        self.number = number
        self.words = words


@dataclass
class Job:
    id: int
    user: str = "ben"
    account: str = "vision"
    state: str = "PENDING"
    reason: str = "Priority"
    submitted: int = 1_772_000_000
    started: int = 0
    ended: int = 0
    gpus: int = 1
    name: str = "train"
    array: str = ""  # "0-3": the pending tasks of an array
    restarts: int = 0  # earlier rows under the same id
    component: bool = False  # of a heterogeneous job, and not its first

    @property
    def done(self) -> bool:
        return self.state in FINISHED


@dataclass
class Association:
    id: int
    account: str
    user: str = ""
    parent: str = "root"
    tres: dict[str, dict[str, int]] = field(default_factory=dict)  # {"total": {"gres/gpu": 8}}
    jobs: dict[str, int] = field(default_factory=dict)  # {"per.submitted": 100}; left out: no limit
    shares: int = 1


@dataclass
class World:
    """One cluster's scheduler and accounting."""

    jobs: dict[int, Job] = field(default_factory=dict)
    associations: list[Association] = field(default_factory=list)
    admins: dict[str, str] = field(
        default_factory=lambda: {"portal": "Operator", "root": "Administrator", "ben": "None", "eve": "None"}
    )
    deaf: bool = False  # writes are answered as done and change nothing

    def add(self, *jobs: Job) -> None:
        self.jobs.update((job.id, job) for job in jobs)

    def limits(self, account: str) -> Association:
        return next(
            association
            for association in self.associations
            if association.account == account and not association.user
        )

    def operates(self, who: str) -> bool:
        return self.admins.get(who) in {"Operator", "Administrator"}

    def cancel(self, number: int, *, who: str, finished_is_fine: bool) -> None:
        job = self._of(number)
        if not self.operates(who) and who != job.user:
            raise SlurmRefusalError(*DENIED)
        if job.component and job.state == "PENDING":
            raise SlurmRefusalError(*NOT_WHOLE)
        if job.done:
            if finished_is_fine:
                return
            raise SlurmRefusalError(*ALREADY_DONE)
        if not self.deaf:
            job.state, job.ended = "CANCELLED", job.submitted + 60

    def requeue(self, number: int, *, who: str, hold: bool, now: int) -> None:
        """A batch job waits again, as another submission."""
        job = self._of(number)
        if not self.operates(who) and who != job.user:
            raise SlurmRefusalError(*DENIED)
        if not self.deaf:
            job.state, job.started, job.ended, job.submitted = "PENDING", 0, 0, now
            job.reason = "job_requeued_in_held_state" if hold else "BeginTime"

    def hold(self, number: int, *, who: str) -> None:
        job = self._updatable(number, who)
        if not self.deaf:
            job.reason = "JobHeldAdmin" if self.operates(who) else "JobHeldUser"

    def release(self, number: int, *, who: str) -> None:
        job = self._updatable(number, who)
        if job.reason == "JobHeldAdmin" and not self.operates(who):
            raise SlurmRefusalError(*DENIED)
        if not self.deaf:
            job.reason = "None"

    def set_limits(self, sent: dict[str, Any], *, who: str) -> None:
        """What slurmrestd from 23.11 on does: TRES limits that are left out are cleared, others stay."""
        if not self.operates(who):
            raise SlurmRefusalError(*DENIED)
        association = self._association(sent)
        if self.deaf:
            return
        limits = sent.get("max", {})
        tres_limits = flat_tres(limits.get("tres", {}))
        association.tres = {path: counts for path in TRES_LIMITS if (counts := tres_limits.get(path))}
        for path, number in flat_jobs(limits.get("jobs", {})).items():
            if number is None:
                association.jobs.pop(path, None)
            else:
                association.jobs[path] = number

    def shown(self, association: Association, *, own_only: bool) -> dict[str, dict[str, int]]:
        """The TRES limits as a reading shows them: with those of the parent, unless they are left out."""
        above = self._parent(association)
        if own_only or above is None:
            return dict(association.tres)
        inherited = {
            path: counts
            for path, counts in self.shown(above, own_only=False).items()
            if path in INHERITED and path not in association.tres
        }
        return {**association.tres, **inherited}

    def _parent(self, association: Association) -> Association | None:
        name = association.account if association.user else association.parent
        return next((row for row in self.associations if row.account == name and not row.user), None)

    def _association(self, sent: dict[str, Any]) -> Association:
        for association in self.associations:
            if (association.account, association.user) == (sent["account"], sent.get("user", "")):
                return association
        raise SlurmRefusalError(9003, "Nothing found with query")

    def _of(self, number: int) -> Job:
        if number not in self.jobs:
            raise SlurmRefusalError(*NO_SUCH_JOB)
        return self.jobs[number]

    def _updatable(self, number: int, who: str) -> Job:
        job = self._of(number)
        if not self.operates(who) and who != job.user:
            raise SlurmRefusalError(*WRONG_USER)
        if job.done:
            raise SlurmRefusalError(*FINISHED_JOB)
        return job


def flat_tres(nested: dict[str, Any]) -> dict[str, dict[str, int]]:
    """{"group": {"minutes": [{type, name, count}]}} as {"group.minutes": {"gres/gpu": 60}}; -1 clears."""
    limits = {}
    for path, entries in leaves(nested):
        if path not in TRES_LIMITS:
            raise SlurmRefusalError(9001, f'Unknown key "{path}"')
        counts = {name_of(entry): entry["count"] for entry in entries}
        limits[path] = {name: count for name, count in counts.items() if count not in {-1, CLEARED}}
    return limits


def flat_jobs(nested: dict[str, Any]) -> dict[str, int | None]:
    limits: dict[str, int | None] = {}
    for path, number in leaves(nested):
        if path not in JOB_LIMITS or set(number) - {"set", "infinite", "number"}:
            raise SlurmRefusalError(9001, f'Unknown key "{path}"')
        limits[path] = number["number"] if number.get("set") and not number.get("infinite") else None
    return limits


def leaves(nested: Any, path: str = "") -> list[tuple[str, Any]]:
    if not isinstance(nested, dict) or "set" in nested:
        return [(path, nested)]
    return [leaf for key, value in nested.items() for leaf in leaves(value, f"{path}.{key}" if path else key)]


def name_of(entry: dict[str, Any]) -> str:
    if unknown := set(entry) - {"type", "name", "id", "count"}:
        raise SlurmRefusalError(9001, f"Unknown key {unknown}")
    return f"{entry['type']}/{entry['name']}" if entry.get("name") else str(entry["type"])
