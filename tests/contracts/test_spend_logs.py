"""LiteLLM's spend logs: the columns of `LiteLLM_SpendLogs` in its `schema.prisma`, as JSON lines and as CSV.

What a model's server had cached stands in `metadata.usage_object.prompt_tokens_details.cached_tokens`.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from clusters import comparison
from clusters.connectors.accounting import spend_logs
from clusters.connectors.base import BadRow, ConnectorError, UsageFact
from clusters.models import Connection, UsageRecord
from tests import builders, sums
from tests.contracts.test_prometheus_tokens import METERS, OPTIONS
from tests.hostile.shell import refusal
from tests.scenarios.real import run

BEGIN = 1_772_445_600  # 2026-03-02 10:00 UTC


def a_request(**changes: Any) -> dict[str, Any]:
    """As the table has it: 1,000 tokens of a prompt, 200 of them cached, and 50 written."""
    return {
        "request_id": "chatcmpl-1",
        "call_type": "acompletion",
        "api_key": "db567a0d",
        "spend": 0.0042,
        "total_tokens": 1_050,
        "prompt_tokens": 1_000,
        "completion_tokens": 50,
        "startTime": "2026-03-02 10:00:00.25",
        "endTime": "2026-03-02T10:00:03.900Z",
        "completionStartTime": None,
        "model": "meta/large",
        "model_group": "large",
        "user": "default_user_id",
        "metadata": {"usage_object": {"prompt_tokens_details": {"cached_tokens": 200}}},
        "cache_hit": "False",
        "team_id": "vision",
        "end_user": "",
        "messages": {"first": "line\nbreak"},
        **changes,
    }


def as_json(path: Path, *requests: Any) -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in requests))
    return path


def as_csv(path: Path, *requests: dict[str, Any]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(requests[0])
        for one in requests:
            writer.writerow(
                json.dumps(value, indent=1) if isinstance(value, dict) else value for value in one.values()
            )
    return path


def rows_of(path: Path) -> list[Any]:
    return list(spend_logs.open_export(path, meters=METERS).rows())


def tokens_of(rows: Sequence[Any]) -> dict[str, tuple[int | None, str]]:
    return {row.source_key: (row.quantity, row.gpu_model) for row in rows if isinstance(row, UsageFact)}


@pytest.mark.parametrize("write", [as_json, as_csv])
def test_a_request_is_its_tokens_and_not_its_spend(write: Any, tmp_path: Path) -> None:
    path = write(
        tmp_path / "spend",
        a_request(),
        a_request(
            request_id="embed", completion_tokens=0, metadata={}, team_id="", endTime="2026-03-02 10:00:00.25"
        ),
        a_request(request_id="failed", prompt_tokens=0, completion_tokens=0),
        a_request(request_id="again", cache_hit="True"),  # from LiteLLM's own cache: no model was asked
    )
    export = spend_logs.open_export(path, meters=METERS)
    rows: list[Any] = list(export.rows())
    assert tokens_of(rows) == {
        "spend/chatcmpl-1/input": (800, "direction=input, model=meta/large"),
        "spend/chatcmpl-1/cached": (200, "direction=cached, model=meta/large"),
        "spend/chatcmpl-1/output": (50, "direction=output, model=meta/large"),
        "spend/embed/input": (1_000, "direction=input, model=meta/large"),
    }
    first, last = rows[0], rows[-1]
    assert (first.account, first.user, first.job_id) == ("vision", "db567a0d", "chatcmpl-1")
    assert (first.started, first.ended, first.gpu_share) == (BEGIN, BEGIN + 3, (1, 1_000_000))
    assert (last.account, last.ended) == ("", BEGIN + 1)
    assert (export.reading.steps, export.reading.proves_until) == (2, BEGIN + 3)


def test_what_cannot_be_read_is_kept_with_its_reason(tmp_path: Path) -> None:
    bad = [
        a_request(prompt_tokens="many"),
        a_request(completion_tokens=1.5),
        a_request(startTime="yesterday"),
        a_request(endTime="2026-03-01T10:00:00Z"),
        a_request(endTime="2026-03-09T10:00:00Z"),
        a_request(request_id=None),
        a_request(model="a;b"),
        [1],
    ]
    path = as_json(tmp_path / "spend", a_request(), *bad)
    path.write_bytes(path.read_bytes() + b'{"request_id": "cut')
    rows = rows_of(path)
    assert len(tokens_of(rows)) == 3
    codes = [row.code for row in rows if isinstance(row, BadRow)]
    assert list(dict.fromkeys(codes)) == [
        *("log-field", "sum-without-length", "sum-too-long", "log-field-missing", "dimension-text"),
        *("event-field", "unfinished"),
    ]
    assert all(row.line for row in rows if isinstance(row, BadRow))

    text = as_csv(tmp_path / "table", a_request(), a_request(request_id="b")).read_text()
    (tmp_path / "table").write_text(text.removesuffix("\n")[:-1])  # cut within the last record
    assert set(tokens_of(rows_of(tmp_path / "table"))) == {
        f"spend/chatcmpl-1/{name}" for name in ("input", "cached", "output")
    }


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "file-empty"),
        ("a,b\n1,2\n", "spend-logs-other-format"),
        ('[{"request_id": 1}]\n', "spend-logs-other-format"),
    ],
)
def test_another_file_is_refused(text: str, code: str, tmp_path: Path) -> None:
    (tmp_path / "other").write_text(text)
    with pytest.raises(ConnectorError) as refused:
        spend_logs.open_export(tmp_path / "other", meters=METERS)
    assert (refused.value.code, refused.value.retry) == (code, False)


@pytest.mark.django_db
def test_a_file_is_imported_once_and_proved_and_never_beside_counters(tmp_path: Path) -> None:
    sums.tokens()
    gateway = builders.a_cluster("gateway")
    path = as_json(tmp_path / "spend.jsonl", a_request(), a_request(request_id="a\ud800\0b", prompt_tokens=3))
    first = run("import_usage", "gateway", path, "--format", "litellm")
    again = run("import_usage", "gateway", path, "--format", "litellm")
    assert (first["new"], first["quarantined"], again["new"], again["revised"]) == (5, 0, 0, 0)
    proof = run("prove", "--source", path, "--format", "litellm")
    assert (proof["holds"], proof["source"]["facts"], proof["source"]["differing"]) == (True, 5, 0)
    as_json(path, a_request(completion_tokens=51))
    (differing,) = comparison.differences(gateway, comparison.newest(rows_of(path)))
    assert differing.recorded is not None
    assert (differing.read.quantity, differing.recorded.quantity) == (51, 50)

    gateway.kind = "prometheus"
    gateway.save()
    Connection.objects.create(cluster=gateway, base_url="http://127.0.0.1:1", options=OPTIONS)
    assert "would be billed beside them" in refusal(
        "import_usage", "gateway", str(path), "--format", "litellm"
    )
    assert UsageRecord.objects.count() == 5
