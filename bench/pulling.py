"""A month of a real Slurm's jobs pulled by the command, and the reading of slurmrestd's answers alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import httpx

from bench import instance, jobs, slurmrestd
from bench.meter import Cost, measure, server_cpu
from bench.result import DifferentWorkError, Goal, Result, Side, in_turn
from bench.scale import Scale

RUN = "bench_run"
DAYS = 30  # over which the lab spreads its jobs

PULL = """
call_command("pull_usage", "lab", stdout=open(os.devnull, "w"))
"""
# What the worker does, in a process of its own that tells what it cost it.
BEFORE = """
import json, os
from pathlib import Path
import django
django.setup()
from django.core.management import call_command
"""
AFTER = """
times = os.times()
status = Path("/proc/self/status").read_text()
peak = int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")))
print(json.dumps([times.user + times.system, peak]))
"""


def works(scale: Scale, postmaster: int, names: set[str]) -> Iterator[Result]:
    if "decode" in names:
        yield decode(scale, postmaster)
    if "pull" in names:
        yield from pull(scale, postmaster)


def decode(scale: Scale, postmaster: int) -> Result:
    """Bytes to facts, against the typed decoding of the same bytes with nothing done about it."""
    import msgspec

    from clusters.connectors.base import Reading
    from clusters.connectors.slurm.decode import Jobs
    from clusters.connectors.slurm.decode import jobs as reader
    from clusters.connectors.slurm.rows import RowReader

    count = scale.of(10_000)
    body = slurmrestd.body(jobs.jobs(count, accounts=40, days=45))
    plain = msgspec.json.Decoder(Jobs)

    def ours() -> object:
        rows = RowReader(Reading())
        return [rows.read(job) for job in reader.read(body).jobs or ()]

    def bare() -> object:
        return plain.decode(body)

    cost, least = in_turn(postmaster, Side(_often(ours)), Side(_often(bare)), rounds=scale.rounds)
    file = instance.HOME / "answer.json"
    file.write_bytes(body)
    return Result(
        "decode", "slurmrestd's answer → facts, beside msgspec alone", count * OFTEN, "jobs", cost, least,
        Goal(at_least="0.60"), memory=(_grown(OURS, file), 2 * _grown(BARE, file)),
    )  # fmt: skip


# Each in a fresh process, by how much it grows at most: nothing that was freed before is there to be used again.
OURS = """
from clusters.connectors.base import Reading
from clusters.connectors.slurm.decode import jobs as reader
from clusters.connectors.slurm.rows import RowReader
def work(body):
    rows = RowReader(Reading())
    return [rows.read(job) for job in reader.read(body).jobs or ()]
"""
BARE = """
import msgspec
from clusters.connectors.slurm.decode import Jobs
def work(body):
    return msgspec.json.Decoder(Jobs).decode(body)
"""
GROWN = """
import sys
from pathlib import Path
def peak():
    status = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")))
body = Path(sys.argv[1]).read_bytes()
before = peak()
kept = work(body)
print(peak() - before)
"""


def _grown(work: str, body: Path) -> int:
    """KiB."""
    done = subprocess.run(
        [sys.executable, "-c", work + GROWN, str(body)], stdout=subprocess.PIPE, text=True, check=True
    )
    return int(done.stdout)


OFTEN = 5  # the clock ticks every 10 ms


def _often(work: Callable[[], object]) -> Callable[[], None]:
    def repeated() -> None:
        for _ in range(OFTEN):
            work()

    return repeated


def pull(scale: Scale, postmaster: int) -> Iterator[Result]:
    """`pull_usage` of all that the lab has, against fetching the same windows and dropping what comes."""
    from tests.integration import slurm_gate
    from tests.integration.slurm_lab import alone, why_not

    if reason := why_not():
        sys.stderr.write(f"pull is left out. {reason}\n")
        return
    count = scale.of(100_000)
    try:
        with tempfile.TemporaryDirectory() as directory, alone(Path(directory), "install", "start") as lab:
            if reason := lab.wait():
                sys.stderr.write(f"pull is left out. {reason}\n")
                return
            lab.does("fill", count)
            with slurm_gate.opened(lab.url) as gate:
                _connect(gate.url, lab.key())
                ours = pulled(postmaster, PULL)
                windows = list(gate.paths)
            _check(count)
            least = measure(lambda: _fetch(lab.url, windows, lab.token()), postmaster)
    finally:
        instance.drop(RUN)
    yield Result(
        "pull", f"slurmrestd → usage, in {len(windows)} windows", count, "jobs", ours, least,
        Goal(at_most="3"), by_wall=True, memory=(ours.peak, 300 * 1024),
    )  # fmt: skip


def _connect(url: str, key: str) -> None:
    from clusters.models import Cluster, Connection
    from portal.core.vault import seal
    from tests.builders import a_plan, a_tenant

    instance.copy(instance.EMPTY, RUN)
    cluster = Cluster.objects.create(name="lab", kind=Cluster.Kind.SLURM)
    a_tenant("acme", plan=a_plan(), accounts=[(cluster, "acme_research")])
    Connection.objects.create(
        cluster=cluster,
        base_url=url,
        user="portal",
        jwt_key=seal(key),
        first_usage_from=datetime.now(UTC) - timedelta(days=DAYS + 1),
    )


def pulled(postmaster: int, command: str) -> Cost:
    """Python in a process of its own: its CPU with the database's, its wall time and its largest size."""
    address = urlsplit(os.environ["DATABASE_URL"])
    environ = os.environ | {"DATABASE_URL": urlunsplit(address._replace(path=f"/{RUN}"))}
    wall, server = time.perf_counter(), server_cpu(postmaster)
    done = subprocess.run(
        [sys.executable, "-c", BEFORE + command + AFTER],
        env=environ,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    client, peak = json.loads(done.stdout)
    server = server_cpu(postmaster) - server
    return Cost(client + server, client, time.perf_counter() - wall, peak)


def _check(count: int) -> None:
    from clusters.models import UsageRecord

    total = UsageRecord.objects.count()
    if total != count:
        raise DifferentWorkError(f"{count} jobs were to be pulled, and {total} were")


def _fetch(url: str, windows: list[str], token: str) -> None:
    headers = {"X-SLURM-USER-NAME": "portal", "X-SLURM-USER-TOKEN": token, "Accept": "application/json"}
    with httpx.Client(base_url=url, headers=headers, timeout=300, trust_env=False) as client:
        for window in windows:
            with client.stream("GET", window) as answer:
                answer.raise_for_status()
                for _ in answer.iter_raw():
                    pass
