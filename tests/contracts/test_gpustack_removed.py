"""What GPUStack listed once and no longer lists is revised to 0, as far as its answers are whole and prove it."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from msgspec.structs import replace

from clusters.connectors.base import BadRow, ConnectorError, UsageFact
from tests.contracts.gpustack_reading import DAY, HOUR, NOON, TEN, amounts, connected, facts_of, read
from tests.fakes.gpustack import GpuStack


def test_what_an_hour_or_a_day_no_longer_lists_is_revised_to_nothing() -> None:
    with GpuStack(NOON + 86_400) as source:
        source.instance(TEN, 3600, id=9)
        source.instance(TEN, 3600, "2")
        source.instance(TEN + HOUR, 1800, id=9)["gpu_hours"] *= 2
        source.volume(TEN, 500)
        source.volume(TEN - HOUR, 500)
        source.tokens(DAY, 1_000, 200, 50)
        source.tokens(DAY, 7, 0, 1, user=None)
        first, _ = read(source)
        del source.hours[1], source.days[0]
        source.hours[1] |= {"gpu_hours": Decimal(0), "unit_hours": Decimal(0)}  # listed, as nothing
        source.hours = [row for row in source.hours if row["kind"] != "volume" or row["hour"] != TEN]
        again, reading = read(source, stored=first)
        third, quiet = read(source, stored=again)
    assert [(row.job_id, row.quantity) for row in again if row.source_key not in facts_of(third)] == [
        *[(f"large {DAY}", 0)] * 3, ("instance 7", 0), ("instance 9", 0), ("volume 2", 0),
    ]  # fmt: skip
    assert amounts(again) == amounts(third)
    for zero in again:
        was = facts_of(first)[zero.source_key]
        assert (zero.meter, zero.account, zero.user, zero.gpu_model) == (
            was.meter,
            was.account,
            was.user,
            was.gpu_model,
        )
        assert (zero.started, zero.ended, zero.gpu_share) == (was.started, was.ended, was.gpu_share)
    assert reading.notes == [
        "3 sums of tokens no longer listed by GPUStack: now 0.",
        "2 sums of instance no longer listed by GPUStack: now 0.",
        "1 sum of volume no longer listed by GPUStack: now 0.",
    ]
    assert quiet.notes == []


def test_a_key_that_was_deleted_meanwhile_counts_once() -> None:
    with GpuStack(NOON + 86_400) as source:
        row = source.tokens(DAY, 1_000, 200, 50)
        first, _ = read(source)
        row["api_key"] = {"value": row["api_key"]["value"], "current": None}
        again, _ = read(source, stored=first)
    assert sum((fact.quantity or 0) for fact in (facts_of(first) | facts_of(again)).values()) == 1_050


@pytest.mark.parametrize("used", [{"gpu": "gpu-hours"}, {"storage": "gib-hours"}, {"tokens": "llm-tokens"}])
@pytest.mark.parametrize(
    "broken", [b"<html>", b'{"items": [], "pagination": {"total": 3}}', b'{"items": []}', b""]
)
def test_an_answer_that_failed_or_was_cut_revises_nothing(broken: bytes, used: dict[str, Any]) -> None:
    with GpuStack(NOON + 86_400) as source:
        source.instance(TEN, 3600)
        source.volume(TEN, 500)
        source.tokens(DAY, 1_000, 200, 50)
        first, _ = read(source)
        source.hours, source.days, source.broken = [], [], broken
        rows: list[Any] = []
        with connected(source, stored=first, **used) as connector, pytest.raises(ConnectorError):
            rows.extend(connector.usage(since=NOON - 86_400, until=source.now, open_keys=()))
    assert rows == []


def test_a_row_that_cannot_be_read_may_be_any_so_that_nothing_of_its_kind_is_revised() -> None:
    with GpuStack(NOON) as source:
        source.instance(TEN - HOUR, 3600, id=9)
        source.volume(TEN - HOUR, 1)
        source.instance(TEN, 3600)
        source.volume(TEN, 500)
        first, _ = read(source, gpu="gpu-hours", storage="gib-hours")
        source.hours[2]["id"] = None
        del source.hours[3]
        rows, reading = read(source, stored=first, gpu="gpu-hours", storage="gib-hours")
    assert [type(row) for row in rows] == [BadRow, UsageFact, UsageFact, UsageFact]
    assert [(row.meter, row.quantity) for row in rows[1:]] == [
        ("gpu-hours", 100), ("gib-hours", 100), ("gib-hours", 0),
    ]  # fmt: skip
    assert "1 sum of instance not listed by GPUStack stay, since 1 of the rows" in reading.notes[0]


def test_usage_that_was_deleted_for_its_age_stays() -> None:
    """Also that of a GPUStack with a new database."""
    with GpuStack(NOON) as source:
        for number in range(4):
            source.instance(TEN - number * HOUR, 3600, id=number)
            source.instance(TEN - number * HOUR, 1800, id=number + 10)
        first, _ = read(source, gpu="gpu-hours")
        source.hours = source.hours[1:3]  # of ten o'clock the second, of nine o'clock the first
        rows, reading = read(source, stored=first, gpu="gpu-hours")
        assert [row.job_id for row in rows if not row.quantity] == ["instance 0", "instance 11"]
        assert (
            "4 of 6 sums of instance not listed by GPUStack stay: it lists nothing before" in reading.notes[0]
        )
        source.hours = []
        rows, reading = read(source, stored=first, gpu="gpu-hours")
    assert rows == []
    assert "it lists nothing before them" in reading.notes[0]


def test_sums_of_other_kinds_meters_and_senders_stay() -> None:
    with GpuStack(NOON) as source:
        source.instance(TEN, 3600, id=9)
        source.instance(TEN, 3600)
        source.volume(TEN, 500)
        first, _ = read(source)
        pushed = replace(first[0], source_key="event/1")
        other = replace(first[0], source_key="gpustack/instance/8", meter="other")
        del source.hours[1:]
        rows, reading = read(source, stored=[*first, pushed, other], gpu="gpu-hours")
    assert [(row.job_id, row.quantity) for row in rows] == [("instance 9", 100), ("instance 7", 0)]
    assert reading.notes == ["1 sum of instance no longer listed by GPUStack: now 0."]
