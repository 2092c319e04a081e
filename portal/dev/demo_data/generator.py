"""The usage of two Slurm clusters up to a given moment: the same seed and moment, the same rows. Pure, integers only.

Slurm jobs are scheduled as they would be: submitted by the hour of the day, placed on nodes that
have room, first come first served with backfill. So no model is ever used beyond its capacity.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from random import Random
from typing import TypeVar

from clusters.connectors.base import BadRow, Row, UsageFact
from portal.dev.demo_data.cast import ATLAS, DAY, HELIX, HOUR, MINUTE, WORK, Machine, Work

T = TypeVar("T")
BACKFILL = 40  # waiting jobs that the scheduler looks at before it gives up
FIRST_JOB = 81_001


@dataclass(slots=True)
class Node:
    name: str
    machine: Machine
    free: int  # GPUs, or cores on nodes without


@dataclass(slots=True)
class Job:
    """A job on its way through the scheduler. `shares`: node and how much of it."""

    work: Work
    raw_id: int
    job_id: str
    name: str
    user: str
    size: int
    qos: str
    lasts: int
    state: str
    limit: int
    submitted: int
    started: int | None = None
    ended: int | None = None
    shares: list[tuple[Node, int]] = field(default_factory=list)


def atlas(
    *, seed: int, since: int, until: int, grown: int = 0, ends: Mapping[str, int] | None = None
) -> Iterator[Row]:
    """The Slurm cluster's jobs in the order of their submission, and two rows that cannot be true.

    Until `grown` there are ever more of them, a third at first. `ends`: by account when it submits its last.
    """
    rng = Random(f"atlas {seed}")  # noqa: S311 - not for secrets
    yield from _facts(_Scheduler(rng, ATLAS, since, until, grown, ends or {}).run(), until)
    yield from _odd_rows(max(since, grown))


def helix(*, seed: int, since: int, until: int, grown: int = 0) -> Iterator[Row]:
    """The other Slurm cluster's, likewise, all of which can be true."""
    rng = Random(f"helix {seed}")  # noqa: S311 - not for secrets
    yield from _facts(_Scheduler(rng, HELIX, since, until, grown, {}).run(), until)


def _facts(jobs: Sequence[Job], until: int) -> Iterator[UsageFact]:
    for job in sorted(jobs, key=lambda job: (job.submitted, job.raw_id)):
        yield _fact(job, until)


class _Scheduler:
    """Replays all submissions in order of time."""

    def __init__(
        self,
        rng: Random,
        machines: Sequence[Machine],
        since: int,
        until: int,
        grown: int,
        ends: Mapping[str, int],
    ) -> None:
        self.rng, self.since, self.until = rng, since, until
        self.grown, self.ends = grown, ends
        self.nodes: dict[str, list[Node]] = {
            machine.model: [
                Node(f"{machine.prefix}{number:02}", machine, machine.gpus or machine.cores)
                for number in range(1, machine.count + 1)
            ]
            for machine in machines
        }
        self.work = [work for work in WORK if work.model in self.nodes]
        self.waiting: dict[str, list[Job]] = {model: [] for model in self.nodes}
        self.events: list[tuple[int, int, bool, Job]] = []  # when, tie, whether it ends, job
        self.ties = 0
        self.next_id = FIRST_JOB
        self.jobs: list[Job] = []

    def run(self) -> list[Job]:
        for job in self.submissions():
            self.at(job.submitted, job, ends=False)
        while self.events and self.events[0][0] <= self.until:
            now, _, ends, job = heappop(self.events)
            if ends:
                self.end(job, now)
            else:
                self.jobs.append(job)
                self.waiting[job.work.model].append(job)
            self.start(job.work.model, now)
        return self.jobs

    def at(self, when: int, job: Job, *, ends: bool) -> None:
        self.ties += 1
        heappush(self.events, (when, self.ties, ends, job))

    def submissions(self) -> Iterator[Job]:
        """In order of time, so that ids are given as a scheduler gives them."""
        submissions = []
        for hour in range(self.since, self.until, HOUR):
            volume = 100
            if hour < self.grown:
                volume = 33 + 67 * (hour - self.since) // (self.grown - self.since)
            for number, work in enumerate(self.work):
                if hour >= self.ends.get(work.account, self.until):
                    continue
                weekend = (hour // DAY + 3) % 7 >= 5  # the epoch began on a Thursday
                share = work.weekend if weekend else 100
                chance = (
                    work.daily * work.hours[hour // HOUR % 24] * share * volume // 24_000_000
                )  # in thousandths
                times = chance // 1000 + (self.rng.randrange(1000) < chance % 1000)
                submissions += [(hour + self.rng.randrange(HOUR), number) for _ in range(times)]
        for when, number in sorted(submissions):
            if when < self.until:
                yield from self.array(self.work[number], when)

    def array(self, work: Work, when: int) -> Iterator[Job]:
        """One submission: a job, or the tasks of an array, which share all but their fate."""
        rng, first = self.rng, self.next_id
        tasks = rng.randint(*work.tasks)
        name, user = rng.choice(work.names), rng.choice(work.users)
        size = _weighted(rng, work.sizes)
        qos = "preemptible" if rng.randrange(100) < work.preemptible else "normal"
        for task in range(tasks):
            job_id = f"{first}_{task}" if work.tasks[1] > 1 else str(first)
            lasts, state, limit = self.fate(work)
            yield Job(work, self.next_id, job_id, name, user, size, qos, lasts, state, limit, when)
            self.next_id += 1

    def fate(self, work: Work) -> tuple[int, str, int]:
        """How long it runs, how that ends, and its time limit."""
        rng = self.rng
        ranges = [(weight, (low, high)) for weight, low, high in work.lasts]
        lasts = rng.randint(*_weighted(rng, ranges))
        limit = -(-lasts * rng.randint(12, 40) // 10 // HOUR) * HOUR
        ends = _weighted(
            rng, ((820, "COMPLETED"), (90, "FAILED"), (52, "CANCELLED"), (34, "TIMEOUT"), (4, "NODE_FAIL"))
        )
        if ends == "FAILED" and rng.randrange(3):
            lasts = rng.randint(2, 4 * MINUTE)  # most failures are typing errors
        elif ends != "COMPLETED":
            lasts = max(1, lasts * rng.randint(5, 100) // 100)
        if ends == "TIMEOUT":
            lasts = limit = max(HOUR, lasts // HOUR * HOUR)
        return lasts, ends, limit

    def start(self, model: str, now: int) -> None:
        waiting = self.waiting[model]
        for job in waiting[:BACKFILL]:
            job.shares = _place(self.nodes[model], job.size)
            if not job.shares:
                continue
            waiting.remove(job)
            for node, share in job.shares:
                node.free -= share
            job.started = now
            if job.qos == "preemptible" and job.lasts > HOUR and self.rng.randrange(100) < 14:
                job.state = "PREEMPTED"
            lasts = job.lasts * self.rng.randint(10, 90) // 100 if job.state == "PREEMPTED" else job.lasts
            self.at(job.started + lasts, job, ends=True)

    def end(self, job: Job, now: int) -> None:
        job.ended = now
        for node, share in job.shares:
            node.free += share
        if job.state == "PREEMPTED" and job.started is not None:
            again = Job(
                job.work,
                job.raw_id,
                job.job_id,
                job.name,
                job.user,
                job.size,
                job.qos,
                max(1, job.lasts - (now - job.started)),
                "COMPLETED",
                job.limit,
                now,
            )
            self.at(now, again, ends=False)


def _weighted(rng: Random, choices: Sequence[tuple[int, T]]) -> T:
    place = rng.randrange(sum(weight for weight, _ in choices))
    for weight, choice in choices:
        place -= weight
        if place < 0:
            return choice
    raise AssertionError("weights add up")


def _place(nodes: list[Node], size: int) -> list[tuple[Node, int]]:
    """Room on the fullest node that has it, or on as many empty nodes as it takes; [] where there is none."""
    machine = nodes[0].machine
    whole = machine.gpus or machine.cores
    needed = size if machine.gpus else size * 16
    if needed <= whole:
        fitting = [node for node in nodes if node.free >= needed]
        return [(min(fitting, key=lambda node: node.free), needed)] if fitting else []
    empty = [node for node in nodes if node.free == whole][: -(-needed // whole)]
    return [(node, whole) for node in empty] if len(empty) * whole >= needed else []


def _fact(job: Job, until: int) -> UsageFact:
    machine = next(machine for machine in (*ATLAS, *HELIX) if machine.model == job.work.model)
    gpus = job.size if machine.gpus else 0
    cores = machine.cores * gpus // machine.gpus if machine.gpus else job.size * 16
    memory = machine.memory_gib * cores // machine.cores * 1024
    nodes = ",".join(node.name for node, _ in job.shares)
    tres = f"cpu={cores},mem={memory // 1024}G,node={max(1, len(job.shares))}"
    waiting, running = job.started is None, job.started is not None and job.ended is None
    exit_code = {"COMPLETED": "0:0", "FAILED": "1:0", "TIMEOUT": "0:15", "CANCELLED": "0:15"}.get(
        job.state, "0:0"
    )
    return UsageFact(
        source_key=f"{job.raw_id}@{job.submitted}",
        account=job.work.account,
        user=job.user,
        job_id=job.job_id,
        name=job.name,
        queue=job.work.queue,
        qos=job.qos,
        gpus=gpus,
        gpu_model=machine.model,
        cpu_milli=cores * 1000,
        memory_mib=memory,
        nodes=len(job.shares),
        node_list=nodes,
        requested=f"{tres},gres/gpu:{machine.model}={gpus}" if gpus else tres,
        time_limit=job.limit,
        submitted=job.submitted,
        eligible=job.submitted,
        started=job.started,
        ended=job.ended,
        seen_until=until if running else None,
        state="PENDING" if waiting else "RUNNING" if running else job.state,
        exit_code="" if waiting or running else exit_code,
    )


def _odd_rows(since: int) -> Iterator[Row]:
    """What real accounting has now and then: a line that was cut off, and a clock that ran backwards."""
    yield BadRow(
        code="truncated",
        raw="80417|rpatel|llm-eval|gpu|COMP",
        line=4211,
    )
    yield UsageFact(
        source_key=f"80388@{since + 2 * DAY}",
        account="robotics",
        user="dokafor",
        job_id="80388",
        name="offline-rl",
        queue="gpu",
        qos="normal",
        gpus=1,
        gpu_model="l40s",
        cpu_milli=12_000,
        memory_mib=98_304,
        nodes=1,
        node_list="atlas-l03",
        submitted=since + 2 * DAY,
        started=since + 2 * DAY + HOUR,
        ended=since + 2 * DAY + 20 * MINUTE,
        state="COMPLETED",
    )
