"""The comments of jobs that only administrators write: `admin_comment`, which `squeue` and `scontrol` show.

Tried: from v0.0.40 on slurmrestd writes it, for a user of the level Administrator; before, it knows no such key.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from clusters.connectors.acts import ActRefusedError, NotStuckError
from clusters.connectors.base import Connected, ConnectorError
from clusters.connectors.slurm import decode, faults
from clusters.connectors.slurm.acts import LIMITS_FROM
from clusters.connectors.slurm.rest import SlurmRest

GOES_ON = frozenset({"PENDING", "RUNNING", "SUSPENDED", "CONFIGURING"})


@dataclass(frozen=True, slots=True)
class JobComment:
    """A job that waits or runs, and its comment."""

    id: int
    submitted: int  # epoch second
    text: str

    @property
    def key(self) -> str:
        """As the usage records have it: 17@1772000000."""
        return f"{self.id}@{self.submitted}"


class _Row(decode.LiveJob, gc=False):
    admin_comment: str | None = None


_ROW: decode.Reader[_Row] = decode.Reader(_Row)


class SlurmComments(Connected):
    """The comments over one slurmrestd. Every method raises `ConnectorError`."""

    __slots__ = ("rest",)

    def __init__(self, rest: SlurmRest) -> None:
        self.rest = rest

    def close(self) -> None:
        self.rest.close()

    def read_all(self) -> list[JobComment]:
        """Of all jobs that wait or run. Raises ActRefusedError where comments cannot be written."""
        if self.rest.api.number < LIMITS_FROM:
            raise ActRefusedError(
                "slurm-comments-unsupported",
                retry=False,
                release=self.rest.api.release or self.rest.api.version,
            )
        return self._read("jobs")

    def write(self, job: JobComment, edit: Callable[[str], str]) -> bool:
        """Have the job's comment be what `edit` makes of it as it is now; False where it is so, or the job is over."""
        if (now := self._now(job)) is None or (text := edit(now)) == now:
            return False
        try:
            self.rest.post(self.rest.slurm(f"job/{job.id}"), {"admin_comment": text})
        except faults.LoginRefusedError as error:
            raise ActRefusedError("slurm-comments-refused", retry=False, user=self.rest.login.user) from error
        except ConnectorError:
            if self._now(job) is None:  # it has ended meanwhile
                return False
            raise
        after = self._now(job)
        if after is not None and after != text:
            raise NotStuckError("slurm-comment-without-effect", retry=False, job=job.id)
        return True

    def _now(self, job: JobComment) -> str | None:
        try:
            return next((row.text for row in self._read(f"job/{job.id}") if row.key == job.key), None)
        except faults.MissingError:
            return None

    def _read(self, path: str) -> list[JobComment]:
        jobs: list[JobComment] = []

        def keep(row: _Row) -> None:
            if GOES_ON.intersection(decode.words(row.job_state)):
                number, submitted = decode.whole(row.job_id) or 0, decode.instant(row.submit_time) or 0
                jobs.append(JobComment(number, submitted, row.admin_comment or ""))

        self.rest.read_jobs(self.rest.slurm(path), _ROW, keep)
        return jobs
