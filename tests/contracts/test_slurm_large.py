"""All that slurmctld has in memory, however much: read piece by piece, and believed only as a whole."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusters.connectors.base import Reading, UsageFact
from clusters.connectors.slurm.acts import SlurmActs
from tests.contracts.slurm_recorded import NOW, Reply, Slurm, a_job, connector, facts, serving

BEGAN = NOW - 600
LIVE = "/slurm/v0.0.42/jobs"
NEEDS_PROC = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
CORES = [{"index": index, "status": ["ALLOCATED"]} for index in range(128)]
REST = {
    "account": "vision",
    "user_name": "ben",
    "name": None,
    "state_reason": "None",
    "array_task_string": '0-3%2 "}],[{\\',
    "job_resources": {"nodes": {"allocation": [{"sockets": [{"index": 0, "cores": CORES}]}]}},
    "comment": "",
}
TAIL = b', "submit_time": {"set": true, "number": %d}, "job_state": ["RUNNING"], %s}' % (
    BEGAN,
    json.dumps(REST, indent=2)[1:-1].encode(),
)
END = b'], "warnings": [], "errors": [], "meta": {"slurm": {"release": "24.11.7", "cluster": "lab"}}}'


class Memory:
    """The most that this process had in memory since it was made, beyond what it had then; in bytes."""

    def __init__(self) -> None:
        self._before = self._now()
        self.grown = 0

    def look(self) -> None:
        self.grown = max(self.grown, self._now() - self._before)

    def _now(self) -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def live(number: int, *, memory: Memory | None = None, padding: int = 0, end: bytes = END) -> Iterator[bytes]:
    """What slurmctld says of the jobs 1 … `number`, made as it is sent."""
    tail = TAIL[:-1] + b', "fill": "%s"}' % (b"x" * padding)
    yield b'{"jobs": ['
    for first in range(1, number + 1, 20):
        ids = range(first, min(first + 20, number + 1))
        text = b", ".join(b'{"job_id": %d%s' % (job, tail) for job in ids)
        yield (b", " if first > 1 else b"") + text
        if memory:
            memory.look()
    yield end
    if memory:
        memory.look()


def read_from(
    parts: Iterator[bytes], *, jobs: int = 1, poured: int = 2**32
) -> tuple[dict[str, UsageFact], Reading]:
    running = [a_job(number, submit=BEGAN, start=BEGAN) for number in range(1, jobs + 1)]
    for job in running:
        job["time"]["elapsed"] = 590
    with serving(Slurm(jobs=running, replies={LIVE: Reply(parts=parts)})) as address:
        source = connector(address, now=NOW)
        source.rest.http.largest_poured = poured
        return facts(list(source.usage(since=NOW - 3600, until=NOW, open_keys=()))), source.reading


def stays(seen: tuple[dict[str, UsageFact], Reading]) -> str:
    """Nothing was moved on; the reason."""
    facts_by_key, reading = seen
    assert {fact.seen_until for fact in facts_by_key.values()} == {BEGAN}
    assert reading.complete_through is None
    (note,) = reading.notes
    assert note.startswith("Running jobs were not moved on, and the watermark stays")
    return note


@pytest.mark.peers  # takes long
@NEEDS_PROC
def test_thirty_thousand_large_jobs_are_read_in_little_memory() -> None:
    padding = 20_000 - len(TAIL)
    assert padding > 0
    memory = Memory()
    facts_by_key, reading = read_from(live(30_000, memory=memory, padding=padding), jobs=3)
    assert {fact.seen_until for fact in facts_by_key.values()} == {BEGAN + 590}
    assert reading.complete_through == NOW - 60
    assert memory.grown < 64 * 2**20


@NEEDS_PROC
def test_whoever_acts_sees_all_jobs_of_an_account_in_little_memory() -> None:
    memory = Memory()
    parts = live(4000, memory=memory, padding=20_000 - len(TAIL))
    slurm = Slurm(replies={LIVE: Reply(parts=parts)})
    with serving(slurm) as address, connector(address, now=NOW) as source:
        acts = SlurmActs(source.rest)
        seen = acts.jobs(account="vision", user="ben")
        for others in ({"account": "speech"}, {"account": "vision", "user": "ann"}):
            slurm.replies[LIVE] = Reply(parts=live(2))
            assert acts.jobs(**others) == []
    assert len(seen) == 4000
    assert memory.grown < 32 * 2**20
    assert (seen[6].key, str(seen[6])[:13]) == (f"7@{BEGAN}", "job 7 (tasks ")
    assert seen[6].states == {"RUNNING"}
    assert not seen[6].waits


def test_errors_that_come_after_the_jobs_take_them_all_back() -> None:
    end = b'], "errors": [{"error_number": 1234, "description": "Lost the thread"}]}'
    assert "Lost the thread" in stays(read_from(live(50, end=end)))


@pytest.mark.parametrize("end", [b"", b"]", b'], "errors": ['], ids=["jobs", "list", "errors"])
def test_an_answer_that_ends_too_early_is_no_answer(end: bytes) -> None:
    assert "breaks off in the middle" in stays(read_from(live(50, end=end)))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (b'{"errors": []}', 'without "jobs"'),
        (b'{"jobs": null, "errors": []}', 'without "jobs"'),
        (b'{"jobs": {"1": 2}, "errors": []}', "a form that is not known"),
        (b'{"jobs": [7, null], "errors": []}', "a form that is not known"),
        (b'{"jobs": ["x"], "errors": []}', "a form that is not known"),
        (b'{"jobs": [{"job_id": "seven"}], "errors": []}', "a form that is not known"),
        (b'{"jobs": [{"job_id": 7 8}], "errors": []}', "breaks off"),
        (b'{"jobs": [], "errors": []} {"jobs": [], "errors": []}', "breaks off"),
        (b'{"jobs": [], "errors": []} and more', "breaks off"),
        (b"}", "breaks off"),
    ],
)
def test_what_is_built_otherwise_is_believed_as_little(text: bytes, sentence: str) -> None:
    assert sentence in stays(read_from(iter([text])))


def test_more_than_can_be_taken_names_the_setting_that_helps() -> None:
    note = stays(read_from(live(2000), poured=2**20))
    assert "with more than 1 MiB: set SLURMRESTD_JSON=compact" in note
