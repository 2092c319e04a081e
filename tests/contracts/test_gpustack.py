"""GPUStack's usage API: hours of instances and volumes, days of tokens, as sums of declared meters, once for ever.

`tests/fakes/gpustack.py` is made from the schema of GPUStack 2.3.0. `data/gpustack-2.3.0` has what a server of it
answered whose usage was written into its tables: not yet seen from a live source with GPUs.
"""

from __future__ import annotations

import json
import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from clusters.connectors.base import BadRow, ConnectorError, UsageFact
from clusters.connectors.findings import Level
from clusters.connectors.gpustack import check
from clusters.connectors.gpustack.client import Item
from clusters.connectors.gpustack.options import GpuStackOptions, options_from
from clusters.connectors.gpustack.rows import RowReader
from clusters.connectors.sums import MeterUnit
from tests.contracts.gpustack_reading import DAY, HOUR, METERS, NOON, TEN, USED, amounts, connected, read
from tests.fakes.gpustack import GpuStack


def test_instances_volumes_and_tokens_come_as_sums_of_their_meters() -> None:
    with GpuStack(NOON) as source:
        source.instance(TEN, 3600, "0.5")
        source.instance(
            TEN, 1800, "4", id=8, key="other", organization_id=None, organization_name="Untracked"
        )
        source.instance(TEN, 3600, "2", id=9, key="cpu", instance_type_name="4c8g")["gpu_hours"] *= 0
        source.volume(TEN, 500)
        source.tokens(DAY - timedelta(days=1), 1_000, 200, 50)
        rows, reading = read(source, since=TEN - 20 * HOUR)
    assert amounts(rows) == {
        ("gpu-hours", "type=h100-80g"): 250,
        ("unit-hours", ""): 200,
        ("gib-hours", "type=volume--pvc--ssd"): 50_000,
        ("llm-tokens", "direction=input, model=large"): 800,
        ("llm-tokens", "direction=cached, model=large"): 200,
        ("llm-tokens", "direction=output, model=large"): 50,
    }
    assert {(row.account, row.user) for row in rows} == {("vision", "ben"), ("", "ben")}
    assert reading.clocks.agree


def test_recorded_answers_are_read_to_the_hundredth_of_an_hour() -> None:
    """Half a card for an hour; then two for half an hour and four of another type for a quarter; and 1,580 tokens."""
    reader = RowReader(GpuStackOptions(**USED), METERS)
    begin, day = datetime(2026, 11, 26, tzinfo=UTC), date(2026, 11, 25)
    rows: list[Any] = []
    for kind in ("instance", "volume"):
        rows += reader.hours(kind, recorded(kind), begin=begin, end=begin + 24 * HOUR)
    rows += reader.tokens(recorded("tokens"), day, (begin - 24 * HOUR, begin))
    assert amounts(rows) == {
        ("gpu-hours", "type=h100-80g"): 150,
        ("gpu-hours", "type=h100-40g"): 100,
        ("unit-hours", ""): 200,
        ("gib-hours", "type=volume--pvc--ssd"): 50_000,
        ("llm-tokens", "direction=input, model=large"): 1_307,
        ("llm-tokens", "direction=cached, model=large"): 200,
        ("llm-tokens", "direction=output, model=large"): 73,
    }
    assert len({row.source_key for row in rows}) == len(rows)


def test_rows_of_one_that_was_renamed_within_the_hour_are_one_sum() -> None:
    (row,) = RowReader(GpuStackOptions(**USED), METERS).hours(
        "instance", [an_item(), an_item()], begin=TEN, end=TEN + HOUR
    )
    assert isinstance(row, UsageFact)
    assert row.quantity == 200


def test_an_hour_has_one_key_whatever_window_reads_it_and_a_revision_replaces_it() -> None:
    with GpuStack(NOON) as source:
        row = source.instance(TEN, 1800)
        first, _ = read(source)
        row["gpu_hours"] *= 2
        again, _ = read(source, since=TEN)
    assert [one.source_key for one in first] == [one.source_key for one in again]
    assert (first[0].quantity, again[0].quantity) == (50, 100)


def test_the_watermark_stays_before_hours_and_days_that_may_still_change() -> None:
    with GpuStack(NOON) as source:
        source.instance(TEN + HOUR, 3600)
        source.tokens(DAY, 5, 0, 1)
        hours, reading = read(source, gpu="gpu-hours")
        assert (hours, reading.complete_through) == ([], int((TEN + HOUR).timestamp()))
        _, reading = read(source)
        assert reading.complete_through == int((TEN - 10 * HOUR).timestamp())
        source.now = NOON + 14 * 3600
        rows, reading = read(source)
    assert sum(amounts(rows).values()) == 106
    assert reading.complete_through == int((TEN + 14 * HOUR).timestamp())


def test_a_window_that_ends_within_a_past_day_reads_the_whole_day_of_tokens() -> None:
    with GpuStack(NOON + 3 * 86_400) as source:
        source.tokens(DAY, 5, 0, 1)
        rows, reading = read(source, until=NOON)
    assert sum(amounts(rows).values()) == 6
    assert reading.complete_through == NOON


def test_hours_of_a_zone_at_a_half_hour_are_those_of_utc() -> None:
    offset = timedelta(hours=5, minutes=30)
    with GpuStack(NOON, offset=offset) as source:
        for number in range(-5, 1):
            source.instance(TEN + number * HOUR, 3600)
        rows, _ = read(source, zone="Asia/Kolkata", since=TEN - 3 * HOUR)
    assert [row.started for row in rows] == [
        int((TEN + number * HOUR).timestamp()) for number in range(-3, 1)
    ]


def test_another_zone_than_the_clusters_is_refused_where_tokens_are_read_by_the_day() -> None:
    with GpuStack(NOON, offset=timedelta(hours=8)) as source:
        source.instance(TEN, 3600)
        with pytest.raises(
            ConnectorError, match=r"at UTC\+08:00 and the time zone of this cluster is at UTC\+00:00"
        ):
            read(source)
        rows, _ = read(source, gpu="gpu-hours")
    assert len(rows) == 1


@pytest.mark.parametrize("used", [{"tokens": "llm-tokens"}, {"gpu": "gpu-hours"}, {"storage": "gib-hours"}])
def test_a_key_that_sees_a_part_of_the_usage_is_refused(used: dict[str, Any]) -> None:
    with GpuStack(NOON, administrator=False) as source:
        with pytest.raises(ConnectorError, match="its own user or organization only"):
            read(source, since=TEN - 40 * HOUR, **used)
        with pytest.raises(ConnectorError, match="does not accept the key"):
            read(source, since=TEN - 40 * HOUR, key="other", **used)


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"<html>", "something else than a list"),
        (b'{"items": [], "pagination": {"total": 3}}', "listed 0 of 3 rows"),
        (b"[" * 100_000, "something else than a list"),
        (b"\xff\xfe", "something else than a list"),
    ],
)
def test_an_answer_that_is_none_is_a_sentence_and_proves_nothing(body: bytes, sentence: str) -> None:
    with GpuStack(NOON, broken=body) as source, connected(source) as connector:
        with pytest.raises(ConnectorError, match=sentence):
            list(connector.usage(since=NOON - 86_400, until=NOON, open_keys=()))
        assert connector.reading.complete_through is None


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"metrics": {"gpu_hours": None}}, "It has no gpu_hours"),
        ({"metrics": {"gpu_hours": -1, "unit_hours": 1}}, "gpu_hours is '-1'"),
        ({"metrics": {"gpu_hours": "8", "unit_hours": 1}}, "gpu_hours is '8'"),
        ({"date": "2026-03-02T10:00:00"}, "date is '2026-03-02T10:00:00'"),
        ({"id": None}, "It has no id"),
        ({"sku_count": None}, "It has no sku_count"),
    ],
)
def test_a_row_that_cannot_be_read_is_kept_with_its_reason(changes: dict[str, Any], reason: str) -> None:
    rows = hours_of(an_item() | changes)
    assert [type(row) for row in rows] == [BadRow]
    assert reason in rows[0].reason


def test_a_meter_with_too_few_decimals_keeps_the_row() -> None:
    meters = METERS | {"gpu-hours": MeterUnit("gpu-hours", 0, 1, ())}
    half = an_item() | {"metrics": {"gpu_hours": Decimal("0.5"), "unit_hours": Decimal("0.5")}}
    reader = RowReader(GpuStackOptions(**USED), meters)
    (row,) = reader.hours("instance", [half], begin=TEN, end=TEN + HOUR)
    assert isinstance(row, BadRow)


def test_ten_thousand_mutated_rows_are_rows_or_have_a_reason() -> None:
    chance = random.Random(18)
    instance, tokens = an_item(), a_token_item()
    for _ in range(10_000):
        hours_of(mutated(instance, chance))
        day = datetime(2026, 3, 2, tzinfo=UTC)
        reader = RowReader(GpuStackOptions(**USED), METERS)
        for row in reader.tokens([mutated(tokens, chance)], DAY, (day, day + timedelta(days=1))):
            assert isinstance(row, UsageFact | BadRow)


def test_connection_test_counts_what_the_source_fills() -> None:
    with GpuStack(NOON) as source:
        source.instance(TEN, 3600)
        findings = check.examine(connected(source), now=NOON, used=USED, meters=METERS)
    by_subject = {finding.subject: (finding.level, finding.sentence) for finding in findings}
    assert by_subject["gpu"] == (
        Level.OK,
        "1 sums of 1 organizations, 1 of them with a user, in the last two days.",
    )
    assert by_subject["storage"][0] == Level.WARN
    with GpuStack(NOON, administrator=False) as source:
        assert check.examine(connected(source), now=NOON, used=USED, meters=METERS)[-1].level == Level.FAIL


@pytest.mark.parametrize(
    "table", [[], {}, {"gpu": ""}, {"gpus": "x"}, {"gpu": 1}, {"tokens": {"server": "vllm"}}]
)
def test_options_that_are_none_are_refused(table: Any) -> None:
    with pytest.raises(ConnectorError):
        options_from(table)


def recorded(name: str) -> Any:
    text = (Path(__file__).parent / "data" / "gpustack-2.3.0" / f"{name}.json").read_text()
    return json.loads(text, parse_float=Decimal)["items"]


def an_item() -> dict[str, Any]:
    return {
        "date": "2026-03-02T10:00:00+00:00",
        "id": 7,
        "key": "h100-80g",
        "sku": "sha1:aa",
        "sku_count": 1,
        "instance_type_name": "h100-80g",
        "creator_name": "ben",
        "organization_id": 3,
        "organization_name": "vision",
        "metrics": {"gpu_hours": 1, "unit_hours": 1, "instance_hours": 1},
    }


def a_token_item() -> Item:
    source = GpuStack(NOON)
    source.tokens(DAY, 1_000, 200, 50)
    question = {"granularity": "day", "group_by": ["date", "organization", "user", "api_key", "route"]}
    return source._tokens(question, DAY, DAY)[0]


def hours_of(item: Any) -> list[Any]:
    return list(
        RowReader(GpuStackOptions(**USED), METERS).hours("instance", [item], begin=TEN, end=TEN + HOUR)
    )


def mutated(item: Item, chance: random.Random) -> Any:
    """Somewhere within it another value, or none."""
    copy: Any = json.loads(json.dumps(item))
    place, name = copy, chance.choice(sorted(copy))
    while isinstance(place[name], dict) and place[name] and chance.random() < 0.7:
        place, name = place[name], chance.choice(sorted(place[name]))
    values: tuple[Any, ...] = (
        None,
        "",
        [],
        {},
        -1,
        1e300,
        float("nan"),
        10**30,
        True,
        "\x00",
        "\ud800",
        "9" * 5_000,
        "0001-01-01T00:00:00+14:00",
    )
    if chance.random() < 0.1:
        del place[name]
    else:
        place[name] = chance.choice(values)
    return copy if chance.random() < 0.98 else chance.choice(values)
