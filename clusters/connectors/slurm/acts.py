"""What can be done through slurmrestd: hold, release and cancel jobs, set the limits of an account.

What Slurm answers to a write is not trusted: versions answer 200 to what failed and an error to what worked.
Each act here looks at what stands afterwards, and only that counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from clusters.connectors.acts import (
    ActRefusedError,
    Ceiling,
    Demand,
    JobSeen,
    Limits,
    NoAccountError,
    NotStuckError,
    differences,
)
from clusters.connectors.base import ConnectorError
from clusters.connectors.shards import ShardRow, largest_share
from clusters.connectors.slurm import associations, decode, faults
from clusters.connectors.slurm.rest import SlurmRest
from portal.excerpt import excerpt, quoted

LIMITS_FROM = (
    40  # v0.0.40: the first version whose association write neither crashes nor loses what it is told
)
REQUEUES_FROM = 45  # v0.0.45, of Slurm 26.05: the first version that can requeue a job
_UPDATE_BROKEN = 39  # v0.0.39 wants a job's whole environment with every update
STARTS = "GrpTRES=gres/gpu"
"""Set to 0, no GPU job of the account or of those below it starts; what runs runs on. GrpTRESMins, which
would do the same to waiting jobs, has Slurm end the running ones within a minute as timed out."""

SHARD_STARTS = "GrpTRES=gres/shard"
"""The same for jobs that hold shards of GPUs, which to Slurm hold none. Where it records no shards, it refuses this."""

SHARDS_APART = (
    "Slurm counts shards apart from GPUs: beside {gpus:,} GPUs, {shards:,} shards can be held, which are at most as "
    "many GPUs again."
)
SHARDS_WITHOUT_MODEL = "Slurm counts shards without their model: a limit of one model does not hold them."

SUBMITS = "GrpSubmitJobs"
"""Set to 0, sbatch refuses new jobs, also those without GPUs."""

JOBS = "GrpJobs"
"""How many jobs of the account, and of those below it, run at once."""

PATIENCE = 5  # seconds in which what was done has to show
_WAIT = (0, 1)  # hundredths of a second, doubling


T = TypeVar("T")


class _Row(decode.LiveJob, gc=False):
    """Of the hundred fields of a job those that are used: there may be many jobs."""

    account: str | None = None
    user_name: str | None = None
    name: str | None = None
    state_reason: str | None = None
    array_task_string: str | None = None
    tres_req_str: str | None = None
    tres_per_job: str | None = None
    tres_per_node: str | None = None
    tres_per_socket: str | None = None
    tres_per_task: str | None = None

    @property
    def asks_for_gpus(self) -> bool:
        """Of what Slurm counts, and of what was asked for where it counts no GPUs."""
        texts = (
            *(self.tres_req_str, self.tres_per_job, self.tres_per_node),
            *(self.tres_per_socket, self.tres_per_task),
        )
        return any("gpu" in text or "shard" in text for text in texts if text)


_ROW: decode.Reader[_Row] = decode.Reader(_Row)


class SlurmActs:
    """The acts over one slurmrestd. `cluster` is Slurm's own name; "" for whichever it answers for. `shards`: what
    shards of its GPUs are.

    Every method raises `ConnectorError`; with `retry` it is not known whether the act was done.
    """

    scheduler = "Slurm"
    whom = "{account} and the accounts below it"
    runs = "Running jobs run on."
    in_parts = False

    def __init__(
        self, rest: SlurmRest, *, cluster: str = "", shards: Sequence[ShardRow] = (), patience: int = PATIENCE
    ) -> None:
        self.rest = rest
        self._shards = shards
        self._starts = (STARTS, SHARD_STARTS) if shards else (STARTS,)
        self._cluster = cluster
        self._patience = patience

    def close(self) -> None:
        self.rest.close()

    @property
    def cluster(self) -> str:
        """Slurm's name of the cluster. Raises `ConnectorError` where neither we nor slurmrestd know it."""
        if name := self._cluster or self.rest.api.cluster:
            return name
        rows = self.rest.get(self.rest.slurmdb("clusters"), key="clusters")["clusters"]
        if len(rows) != 1:
            names = excerpt(", ".join(str(row.get("name")) for row in rows))
            raise ActRefusedError("slurm-several-clusters", retry=False, names=names)
        self._cluster = str(rows[0]["name"])
        return self._cluster

    def jobs(self, *, account: str = "", user: str = "") -> list[JobSeen]:
        """What slurmctld has, of that account and user where they are given, by number."""
        jobs: list[JobSeen] = []

        def keep(row: _Row) -> None:
            if account in {"", row.account or ""} and user in {"", row.user_name or ""}:
                jobs.append(_job(row))

        self.rest.read_jobs(self.rest.slurm("jobs"), _ROW, keep)
        return sorted(jobs, key=lambda job: (job.id, job.submitted))

    def job(self, number: int) -> list[JobSeen]:
        """The job, or all tasks of the array of that number; nothing where slurmctld knows of none."""
        jobs: list[JobSeen] = []
        try:
            self.rest.read_jobs(self.rest.slurm(f"job/{number}"), _ROW, lambda row: jobs.append(_job(row)))
        except faults.MissingError:
            return []
        return jobs

    def cancel(self, number: int) -> list[JobSeen]:
        """End the job, or all tasks of the array; what is left of it. Over already: nothing is sent."""
        seen = self.job(number)
        if all(job.over for job in seen):
            return seen
        refused = self._sent(self._cancel, number)
        return self._stands(
            lambda: self.job(number),
            lambda jobs: all(job.over for job in jobs),
            refused,
            "slurm-cancel-without-effect",
            job=number,
        )

    def requeue(self, number: int) -> list[JobSeen]:
        """Take a running job from its nodes and hold it; it has another submission then. One that waits is let be."""
        self.refuse_requeues()
        before = self.job(number)
        if all(job.over or job.waits for job in before):
            raise ActRefusedError("slurm-requeue-too-late", retry=False, job=number)
        body = {"jobs": [str(number)], "flags": ["Hold"]}
        refused = self._sent(lambda: self.rest.post(self.rest.slurm("jobs/requeue"), body))
        return self._stands(
            lambda: self.job(number),
            lambda jobs: bool(jobs) and all(job.held for job in jobs if not job.over) and _waits(jobs),
            refused,
            "slurm-requeue-without-effect",
            job=number,
        )

    def refuse_requeues(self) -> None:
        """Raises `ActRefusedError` where slurmrestd has no way to requeue."""
        if self.rest.api.number < REQUEUES_FROM:
            raise ActRefusedError(
                "slurm-requeue-unsupported",
                retry=False,
                release=self.rest.api.release or self.rest.api.version,
            )

    def hold(self, number: int) -> list[JobSeen]:
        """Keep a waiting job, or an array's waiting tasks, from starting. One that started meanwhile is let be."""
        self.refuse_updates()
        refused = self._sent(self._update, number, hold=True)
        seen = self._stands(
            lambda: self.job(number),
            lambda jobs: all(job.held for job in jobs if job.waits),
            refused,
            "slurm-hold-without-effect",
            job=number,
        )
        if not any(job.waits for job in seen):
            if any(job.held for job in seen if not job.over):
                self._sent(self._update, number, hold=False)  # it would wait for ever when it is requeued
            raise ActRefusedError("slurm-hold-too-late", retry=False, job=number)
        return seen

    def release(self, number: int) -> list[JobSeen]:
        """Let a held job go again."""
        self.refuse_updates()
        refused = self._sent(self._update, number, hold=False)
        return self._stands(
            lambda: self.job(number),
            lambda jobs: not any(job.held for job in jobs if job.waits),
            refused,
            "slurm-release-without-effect",
            job=number,
        )

    def limits(self, account: str, user: str = "") -> dict[str, int]:
        """The own limits of the account, or of the user in it, without those from above. Raises NoAccountError."""
        self.refuse_limits()
        rows = self.rest.get(
            self.rest.slurmdb("associations"),
            {
                "account": account,
                "cluster": self.cluster,
                **({"user": user} if user else {}),
                # Two names of one thing: releases differ, and each passes over the one that it does not know.
                "without_parent_limits": "true",
                "Exclude limits from parents": "true",
            },
            key="associations",
        )["associations"]
        named = {
            row.get("partition") or "": row
            for row in rows
            if (row.get("account"), row.get("cluster"), row.get("user") or "")
            == (account, self.cluster, user)
        }
        if user and any(named):
            raise ActRefusedError("slurm-user-partitions", retry=False, account=quoted(account))
        if "" not in named:
            code = "slurm-not-in-account" if user else "slurm-no-account"
            raise NoAccountError(code, retry=False, cluster=self.cluster, account=quoted(account))
        return associations.limits_of(named[""])

    def below(self, account: str) -> set[str]:
        """The accounts that lie below it, at any depth: its limits hold for them too."""
        rows = self.rest.get(
            self.rest.slurmdb("associations"), {"cluster": self.cluster}, key="associations"
        )["associations"]
        children: dict[str, set[str]] = {}
        for row in rows:
            if row.get("account") and row.get("cluster") == self.cluster and not row.get("user"):
                children.setdefault(row.get("parent_account") or "", set()).add(str(row["account"]))
        accounts: set[str] = set()
        queue = [account]
        while queue:
            new = children.get(queue.pop(), set()) - accounts - {account}
            accounts |= new
            queue += new
        return accounts

    def demand(self, account: str, *, now: Limits, submits: bool, drains: bool = False) -> Demand:
        """Limits of 0."""
        del account, now
        if drains:
            raise ActRefusedError("slurm-drains-nothing", retry=False)
        limits = dict.fromkeys((*self._starts, SUBMITS) if submits else self._starts, 0)
        return Demand(
            limits=limits, notes=("It takes effect where slurm.conf has AccountingStorageEnforce=limits.",)
        )

    def ceiling(self, account: str, ceiling: Ceiling) -> Demand:
        """Limits of the association: running jobs run on, and what is beyond waits.

        Shards are not among Slurm's GPUs, and it counts them without a model. So they have a limit of their own: as
        many of the largest as make up the GPUs.
        """
        del account
        names = {f"{STARTS}:{model}" if model else STARTS: number for model, number in ceiling.gpus.items()}
        jobs = {} if ceiling.jobs is None else {JOBS: ceiling.jobs}
        notes = ["It takes effect where slurm.conf has AccountingStorageEnforce=limits."]
        if self._shards and "" in ceiling.gpus:
            gpus = ceiling.gpus[""]
            part, whole = largest_share(self._shards)
            names[SHARD_STARTS] = gpus * whole // part
            notes.append(SHARDS_APART.format(shards=names[SHARD_STARTS], gpus=gpus))
        elif self._shards and ceiling.gpus:
            notes.append(SHARDS_WITHOUT_MODEL)
        return Demand(limits=names | jobs, notes=tuple(notes))

    def restored(self, value: Any) -> Any:
        """What was there: whoever set a limit to 0 is not known."""
        return value

    def refuse_without_effect(self, account: str, limits: Limits) -> None:
        """A limit that is there is obeyed, where Slurm obeys limits."""

    def set_limits(self, account: str, target: Limits, *, before: Limits, user: str = "") -> dict[str, int]:
        """Bring the limits of the account, or of the user in it, from `before` to exactly `target`; what they are then.

        Nothing is sent where they are so, nor where they are not `before` any more.
        """
        current = self.limits(account, user)
        if current == dict(target):
            return current
        if current != dict(before):
            raise ActRefusedError(
                "slurm-limits-changed",
                retry=False,
                account=account,
                differences="; ".join(differences(before, current)),
            )
        sent = associations.body(
            cluster=self.cluster, account=account, user=user, current=current, target=target
        )
        refused = self._sent(lambda: self.rest.post(self.rest.slurmdb("associations"), sent))
        return self._stands(
            lambda: self.limits(account, user),
            lambda limits: limits == dict(target),
            refused,
            "slurm-limits-without-effect",
            account=account,
            otherwise=lambda limits: "; ".join(differences(target, limits)),
        )

    def refuse_limits(self) -> None:
        """Raises `ActRefusedError` where an association must not be written."""
        if self.rest.api.number < LIMITS_FROM:
            raise ActRefusedError(
                "slurm-limits-unsupported",
                retry=False,
                release=self.rest.api.release or self.rest.api.version,
            )

    def refuse_updates(self) -> None:
        """Raises `ActRefusedError` where jobs cannot be held or released."""
        if self.rest.api.number == _UPDATE_BROKEN:
            raise ActRefusedError("slurm-updates-unsupported", retry=False)

    def _update(self, number: int, *, hold: bool) -> None:
        self.rest.post(self.rest.slurm(f"job/{number}"), {"hold": hold})

    def _cancel(self, number: int) -> None:
        response = self.rest.delete(self.rest.slurm(f"job/{number}"))
        for status in response.get("status") or ():
            error = status.get("error") or {}
            if error.get("code"):
                raise ActRefusedError(
                    "slurm-cancel-refused",
                    retry=False,
                    job=number,
                    words=error.get("string") or error.get("message"),
                    number=error["code"],
                )

    def _sent(self, call: Callable[..., Any], *args: Any, **options: Any) -> ConnectorError | None:
        try:
            call(*args, **options)
        except ConnectorError as error:
            return error
        return None

    def _stands(
        self,
        look: Callable[[], T],
        so: Callable[[T], bool],
        refused: ConnectorError | None,
        code: str,
        *,
        otherwise: Callable[[T], str] = lambda _: "",
        **values: object,
    ) -> T:
        """What is seen once it is `so`. What was refused is looked at once, what was not for a while."""
        end = time.monotonic() + (0 if refused else self._patience)
        wait, following = _WAIT
        while not so(seen := look()):
            if time.monotonic() >= end:
                raise refused or NotStuckError(code, retry=False, differences=otherwise(seen), **values)
            time.sleep(wait / 100)
            wait, following = following, min(following * 2, 50)
        return seen


def _waits(jobs: list[JobSeen]) -> bool:
    return any(job.waits for job in jobs)


def _job(row: _Row) -> JobSeen:
    return JobSeen(
        id=decode.whole(row.job_id) or 0,
        submitted=decode.instant(row.submit_time) or 0,
        account=row.account or "",
        user=row.user_name or "",
        name=row.name or "",
        states=frozenset(decode.words(row.job_state)),
        reason=row.state_reason or "",
        tasks=row.array_task_string or "",
        gpu=row.asks_for_gpus,
    )
