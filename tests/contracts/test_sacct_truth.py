"""Every second of the recorded clusters is read: totals equal those that were computed independently."""

from __future__ import annotations

import csv
from collections import Counter
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING

import pytest

from clusters.connectors.base import BadRow, Reading, UsageFact
from clusters.connectors.files import physical_lines
from clusters.connectors.sacct.layout import layout, raw_rows
from clusters.connectors.sacct.rows import RowReader
from tests.contracts.sacct_exports import LOS_ANGELES, ReadExport, read_export, shared
from tests.contracts.sacct_exports import UTC as UTC_ZONE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from zoneinfo import ZoneInfo


@lru_cache(maxsize=4)
def recorded(file: str) -> ReadExport:
    """The facts of a recorded cluster, which several tests count: the largest has 74,167."""
    return read_export(shared(f"slurm/{file}.sacct.gz"))


FILES = {
    "philly_2017-09_2017-11": "philly_2017-09_2017-11",
    "supercloud_dev": "supercloud_2021-01_2021-03",
    "ubccr_pozidriv": "ubccr_pozidriv_2016-12",
    "fau_alex_fritz": "fau_alex_fritz_2023-02",
}


def truth(name: str, dataset: str) -> list[dict[str, str]]:
    with shared(f"truth/{name}.csv").open(newline="") as file:
        return [line for line in csv.DictReader(file) if line["dataset"] == dataset]


def run_seconds(fact: UsageFact) -> int:
    assert fact.started is not None
    assert fact.ended is not None
    return fact.ended - fact.started - fact.suspended


def months(fact: UsageFact) -> Iterator[tuple[str, int]]:
    """The calendar months (UTC) that a job touches, with its seconds in each; of zero length, its start's."""
    at, end = fact.started, fact.ended
    assert at is not None
    assert end is not None
    while at <= end:
        day = datetime.fromtimestamp(at, UTC)
        following = datetime(day.year + day.month // 12, day.month % 12 + 1, 1, tzinfo=UTC)
        until = min(end, int(following.timestamp()))
        yield f"{day:%Y-%m}", until - at
        if until == end:
            return
        at = until


@pytest.mark.parametrize("dataset", FILES)
def test_each_account_has_its_jobs_and_seconds_per_state(dataset: str) -> None:
    export = recorded(FILES[dataset])
    assert export.bad == []
    totals: Counter[tuple[str, str, str]] = Counter()
    for fact in export.facts:
        account, seconds = fact.account, run_seconds(fact)
        totals[account, fact.state, "jobs"] += 1
        totals[account, fact.state, "gpu_seconds"] += seconds * fact.gpus
        totals[account, fact.state, "cpu_seconds"] += seconds * fact.cpu_milli // 1000
        totals[account, fact.state, "zero_length"] += seconds == 0
    columns = ("jobs", "gpu_seconds", "cpu_seconds", "zero_length")
    assert totals == {
        (line["account"], line["state"], column): int(line[column])
        for line in truth("slurm_account_state", dataset)
        for column in columns
    }


@pytest.mark.parametrize("dataset", FILES)
def test_each_account_has_its_seconds_per_month(dataset: str) -> None:
    totals: Counter[tuple[str, str, str]] = Counter()
    for fact in recorded(FILES[dataset]).facts:
        for month, seconds in months(fact):
            totals[fact.account, month, "jobs"] += 1
            totals[fact.account, month, "gpu_seconds"] += seconds * fact.gpus
            totals[fact.account, month, "cpu_seconds"] += seconds * fact.cpu_milli // 1000
    assert totals == {
        (line["account"], line["period"], column): int(line[column])
        for line in truth("slurm_account_month_prorated", dataset)
        for column in ("jobs", "gpu_seconds", "cpu_seconds")
    }


@pytest.mark.parametrize(
    ("file", "dataset", "gpu_jobs", "gpu_seconds", "cpu_seconds"),
    [
        ("philly_2017-09_2017-11", "philly_2017-09_2017-11", 74_167, 3_221_884_955, 19_331_309_730),
        ("supercloud_2021-01_2021-03", "supercloud_dev", 1_454, 75_743_845, 4_274_750_834),
        ("ubccr_pozidriv_2016-12", "ubccr_pozidriv", 0, 0, 259_143_395),
        ("fau_alex_fritz_2023-02", "fau_alex_fritz", 303, 14_328_134, 318_185_048),
    ],
)
def test_the_whole_file_has_its_totals(
    file: str, dataset: str, gpu_jobs: int, gpu_seconds: int, cpu_seconds: int
) -> None:
    facts = recorded(file).facts
    assert sum(fact.gpus > 0 for fact in facts) == gpu_jobs
    assert sum(run_seconds(fact) * fact.gpus for fact in facts) == gpu_seconds
    assert sum(run_seconds(fact) * fact.cpu_milli for fact in facts) == cpu_seconds * 1000
    assert len({fact.source_key for fact in facts}) == len(facts)  # ids alone repeat in supercloud


@pytest.mark.parametrize(
    ("day", "rows", "running", "gpu_seconds_so_far"),
    [("2017-11-01", 52_849, 252, 2_079_548_691), ("2017-12-01", 74_167, 126, 3_144_715_514)],
)
def test_a_snapshot_keeps_running_jobs_open_and_proves_its_own_moment(
    day: str, rows: int, running: int, gpu_seconds_so_far: int
) -> None:
    export = read_export(shared(f"slurm/philly_asof_{day}.sacct.gz"))
    moment = int(datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp())
    assert export.reading.proves_until == moment
    assert len(export.facts) == rows
    assert sum(fact.ended is None for fact in export.facts) == running
    seconds = 0
    for fact in export.facts:
        assert fact.started is not None
        seconds += fact.gpus * ((fact.ended or moment) - fact.started)
    assert seconds == gpu_seconds_so_far


@pytest.mark.parametrize(("zone", "noted"), [(LOS_ANGELES, 0), (UTC_ZONE, 7)])
def test_the_night_the_clocks_went_back_bills_its_true_seconds_in_either_zone(
    zone: ZoneInfo, noted: int
) -> None:
    export = read_export(shared("slurm/philly_dst_los_angeles.sacct.gz"), zone=zone)
    assert sum(run_seconds(fact) * fact.gpus for fact in export.facts) == 391_376
    assert len(export.facts) == 54
    # Read as UTC, 7 rows have an End - Start that is not their elapsed time; in their own zone, none.
    assert export.reading.notes == (
        [f"{noted} rows whose End minus Start is not the elapsed time, which was counted from Start."]
        if noted
        else []
    )


def test_local_times_tell_the_same_facts_except_inside_the_hour_that_came_twice() -> None:
    utc = {fact.job_id: fact for fact in read_export(shared("slurm/philly_2017-09_2017-11.sacct.gz")).facts}
    shifted = []
    for fact in read_export(shared("slurm/philly_dst_los_angeles.sacct.gz"), zone=LOS_ANGELES).facts:
        true = utc[fact.job_id]
        if fact != true:
            assert run_seconds(fact) == run_seconds(true)
            assert fact.started is not None
            shifted.append((fact.job_id, fact.started - (true.started or 0)))
    # Submitted, started and ended in the second 01:00 to 02:00: the first is taken.
    ids = ["155679", "155680", "155682", "155684", "155685", "155689", "155690", "155691"]
    assert shifted == [(job_id, -3600) for job_id in ids]


@pytest.mark.parametrize("zone", [UTC_ZONE, LOS_ANGELES], ids=str)
@pytest.mark.parametrize("file", [*FILES.values(), "philly_dst_los_angeles"])
def test_columns_read_what_all_the_rules_read_row_by_row(file: str, zone: ZoneInfo) -> None:
    import gzip

    path = shared(f"slurm/{file}.sacct.gz")
    by_columns = read_export(path, zone=zone)
    with gzip.open(path) as stream:
        lines = physical_lines(stream)  # type: ignore[arg-type]
        columns = layout(next(lines).text.split("|"), delimiter="|")
        careful = RowReader(columns, zone, Reading())
        rows = list(careful.rows(raw_rows(lines, delimiter="|", width=columns.width)))
        careful.finish()
    assert [*by_columns.facts, *by_columns.bad] == sorted(rows, key=lambda row: isinstance(row, BadRow))
    assert by_columns.reading == careful.reading
