"""The contract of a live connector: true rows, each at least once, and nothing claimed that was not read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from clusters.connectors.base import BadRow, Connector, ConnectorError, UsageFact
from tests.contracts import prometheus_contract
from tests.contracts.live_contract import Case, Source
from tests.contracts.slurm_recorded import (
    ABSENT,
    FIXTURES,
    VERSIONS,
    Reply,
    Slurm,
    connector,
    now_of,
    of,
    serving,
)


@dataclass
class SlurmSource:
    """The recorded cluster of one version, with one row more that nobody can use."""

    slurm: Slurm
    address: str

    def __post_init__(self) -> None:
        self.now = now_of(self.slurm)
        self.since = self.now - 7200
        self.missing_key = f"999999@{self.now - 9000}"
        self.bad = 1
        (self._open,) = (job for job in self.slurm.jobs if job["name"] == "still-running")
        self.running = f"{self._open['job_id']}@{self._open['time']['submission']}"
        other = next(job for job in self.slurm.jobs if job["name"] == "gpu1")
        self.slurm.jobs = [*self.slurm.jobs, {**other, "job_id": 0}]

    def connector(self) -> Connector:
        return connector(self.address, now=self.now)

    def shuffle(self) -> None:
        self.slurm.jobs = self.slurm.jobs[::-1]

    def end(self) -> None:
        self._open["time"]["end"] = self.now - 5

    def fail(self) -> None:
        self.slurm.replies["/slurmdb/"] = lambda query: (
            Reply(502, b"<html>", "text/html") if "end_time" in query else None
        )

    def heal(self) -> None:
        self.slurm.replies.clear()


def slurm_of(version: str) -> Case:
    @contextmanager
    def source() -> Iterator[SlurmSource]:
        if not FIXTURES.is_dir():
            pytest.skip(ABSENT)
        slurm = of(version)
        with serving(slurm) as address:
            yield SlurmSource(slurm, address)

    return Case(f"slurm {version}", source)


CASES = [*(slurm_of(version) for version in VERSIONS), prometheus_contract.CASE]


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def source(request: pytest.FixtureRequest) -> Iterator[Source]:
    with request.param.source() as live_source:
        yield live_source


def read(
    source: Source, *, open_keys: tuple[str, ...] = ()
) -> tuple[dict[str, UsageFact], list[BadRow], Connector]:
    """Facts by key, the newest of each; rows put aside; and the connector that gave them."""
    live = source.connector()
    rows = list(live.usage(since=source.since, until=source.now, open_keys=open_keys))
    facts = {row.source_key: row for row in rows if isinstance(row, UsageFact)}
    return facts, [row for row in rows if isinstance(row, BadRow)], live


def test_the_same_again_is_the_same(source: Source) -> None:
    assert read(source)[:2] == read(source)[:2]


def test_the_order_of_the_source_does_not_matter(source: Source) -> None:
    before = read(source)[0]
    source.shuffle()
    assert read(source)[0] == before


def test_a_fact_that_ended_says_when_and_one_that_runs_says_how_far(source: Source) -> None:
    for fact in read(source)[0].values():
        until = fact.ended if fact.ended is not None else fact.seen_until
        if fact.started is not None:
            assert until is not None
            assert 0 <= fact.suspended <= until - fact.started
    running = read(source)[0][source.running]
    assert running.ended is None
    assert running.seen_until is not None


def test_what_runs_is_asked_for_and_ends_under_the_same_key(source: Source) -> None:
    assert read(source, open_keys=(source.running,))[2].reading.missing == []
    source.end()
    facts, _, live = read(source, open_keys=(source.running,))
    assert facts[source.running].ended is not None
    assert live.reading.missing == []


def test_an_open_key_that_the_source_has_no_row_of_is_named(source: Source) -> None:
    facts, _, live = read(source, open_keys=(source.missing_key,))
    assert live.reading.missing == [source.missing_key]
    assert source.missing_key not in facts


def test_a_row_that_cannot_be_used_is_kept_with_its_reason(source: Source) -> None:
    _, bad, live = read(source)
    assert len(bad) == source.bad
    assert all(row.reason and row.code and row.raw for row in bad)
    assert live.reading.complete_through is not None


def test_a_pass_that_fails_proves_nothing_and_the_next_one_gives_all(source: Source) -> None:
    whole = read(source)[0]
    source.fail()
    live = source.connector()
    with pytest.raises(ConnectorError) as caught:
        list(live.usage(since=source.since, until=source.now, open_keys=()))
    assert caught.value.retry
    assert str(caught.value).endswith(".")
    assert live.reading.complete_through is None
    source.heal()
    assert read(source)[0] == whole


def test_no_more_is_claimed_than_was_asked_for(source: Source) -> None:
    live = source.connector()
    list(live.usage(since=source.since, until=source.now - 3000, open_keys=()))
    assert live.reading.complete_through is not None
    assert live.reading.complete_through <= source.now - 3000
    reached = read(source)[2].reading.complete_through
    assert reached is not None
    assert reached <= source.now


def test_the_reading_is_a_new_one_each_time(source: Source) -> None:
    live = source.connector()

    def ask() -> None:
        list(live.usage(since=source.since, until=source.now, open_keys=(source.missing_key,)))

    ask()
    first = live.reading
    ask()
    assert live.reading is not first
    assert live.reading == first
