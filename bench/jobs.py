"""Made-up jobs, always the same ones: whole numbers from a fixed seed, no clock, no fractions."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from random import Random
from typing import NamedTuple

from clusters.connectors.sacct.layout import COMMAND

FIRST = 1_767_225_600  # 2026-01-01T00:00:00Z
DAY = 86_400
MODELS = ("a100", "h100", "l40s")
QUEUES = ("batch", "interactive", "long")
STATES = ("COMPLETED", "COMPLETED", "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT")
USERS = 12  # people of an account
COLUMNS = COMMAND.partition("--format=")[2].replace(",", "|")


class Job(NamedTuple):
    """One job that has ended; instants are UTC epoch seconds."""

    number: int
    account: int  # 0 … accounts - 1
    user: str
    model: str
    gpus: int
    cpus: int
    memory: int  # GiB
    queue: str
    state: str
    submitted: int
    started: int
    ended: int

    @property
    def key(self) -> str:
        return f"{self.number}@{self.submitted}"


def jobs(
    count: int, *, accounts: int, days: int, first: int = FIRST, largest: int = 0, seed: int = 1
) -> Iterator[Job]:
    """Jobs submitted evenly over the days from `first` on: most last minutes, some a day and more.

    With `largest`, one job in so many is of the first account, beside those that it draws anyway.
    """
    draw = Random(seed).randrange
    for number in range(count):
        account = 0 if largest and number % largest == 0 else draw(accounts)
        submitted = first + number * days * DAY // count
        started = submitted + draw(1 << draw(1, 13))
        gpus = 1 << draw(4)
        person, other = (
            draw(USERS),
            draw(8) == 0,
        )  # who has a model and a queue of their own, for most of their jobs
        yield Job(
            number=100_000 + number,
            account=account,
            user=f"user{account * USERS + person:05d}",
            model=MODELS[draw(len(MODELS)) if other else person % len(MODELS)],
            gpus=gpus,
            cpus=gpus * 12,
            memory=gpus * 60,
            queue=QUEUES[draw(len(QUEUES)) if other else person // 3 % len(QUEUES)],
            state=STATES[draw(len(STATES))],
            submitted=submitted,
            started=started,
            ended=started + 30 + draw(1 << draw(7, 18)),
        )


def account_name(account: int) -> str:
    return f"lab{account:04d}"


def sacct_lines(workload: Iterator[Job]) -> Iterator[str]:
    """The jobs as the command of docs/reference/sacct.md prints them, header first, each ended by a line break."""
    yield f"{COLUMNS}\n"
    for job in workload:
        tres = f"billing={job.cpus},cpu={job.cpus},gres/gpu:{job.model}={job.gpus},gres/gpu={job.gpus}"
        submit = _local(job.submitted)
        yield (
            f"{job.number}|{job.number}|gpu1|{job.user}|{account_name(job.account)}|{job.queue}|normal|{job.state}"
            f"|0:0|{submit}|{submit}|{_local(job.started)}|{_local(job.ended)}|{job.ended - job.started}|00:00:00"
            f"|1440|1|{job.cpus}|{tres}|{tres},mem={job.memory}G,node=1|train-{job.number % 97}"
            f"|node{job.number % 200:03d}\n"
        )


def _local(moment: int) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%S")
