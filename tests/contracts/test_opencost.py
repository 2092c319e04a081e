"""OpenCost's `/allocation` as a file: the hours that its answer tells, to the second, and nothing of its costs.

Fields and their names are those of `Allocation` in its `core/pkg/opencost/allocation.go`.
"""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from clusters.connectors.accounting import opencost
from clusters.connectors.base import BadRow, ConnectorError, UsageFact
from tests import builders
from tests.hostile.shell import refusal
from tests.scenarios.real import run

TEN = 1_772_445_600  # 2026-03-02 10:00 UTC


def an_allocation(**changes: Any) -> dict[str, Any]:
    """A pod of an hour: 2.5 GPU-hours, 16 core-hours, 64 GiB-hours."""
    return {
        "name": "kube/n-1/team/train-0",
        "properties": {
            "cluster": "kube",
            "node": "n-1",
            "namespace": "team",
            "pod": "train-0",
            "controller": "train",
        },
        "window": {"start": "2026-03-02T10:00:00Z", "end": "2026-03-02T11:00:00Z"},
        "start": "2026-03-02T10:00:00Z",
        "end": "2026-03-02T11:00:00Z",
        "minutes": 60.0,
        "cpuCoreHours": 16.0,
        "gpuHours": 2.5,
        "ramByteHours": 64.0 * 2**30,
        "gpuCost": 99.0,
        "totalCost": 101.25,
        **changes,
    }


def written(path: Path, *steps: dict[str, Any]) -> Path:
    path.write_text(json.dumps({"code": 200, "status": "success", "data": steps}))
    return path


def gpu_seconds(rows: list[UsageFact]) -> int:
    return sum(row.gpus * ((row.ended or 0) - (row.started or 0)) for row in rows)


def test_hours_of_a_step_are_held_to_the_second(tmp_path: Path) -> None:
    path = written(
        tmp_path / "allocation.json",
        {
            "train-0": an_allocation(),
            "serve-0": an_allocation(end="2026-03-02T10:20:00Z", gpuHours=0.333333333, cpuCoreHours=0.5),
            "web-0": an_allocation(gpuHours=0, properties={"namespace": "web"}),
            "__idle__": an_allocation(),
            "kube/__idle__": an_allocation(),
        },
        {"train-0": an_allocation(start="2026-03-02T11:00:00Z", end="2026-03-02T12:00:00Z")},
    )
    export = opencost.open_export(path)
    rows: list[Any] = list(export.rows())
    by_key = {row.source_key: row for row in rows}
    first = by_key["opencost/train-0/2026-03-02T10:00:00Z"]
    assert (first.account, first.job_id, first.name, first.node_list) == ("team", "train-0", "train", "n-1")
    assert (first.started, first.ended, first.gpus, first.cpu_milli) == (TEN, TEN + 3600, 2, 16_000)
    assert first.memory_mib == 64 * 1024
    assert by_key["opencost/train-0/2026-03-02T10:00:00Z/rest"].ended == TEN + 1800
    assert (
        gpu_seconds([row for row in rows if row.started == TEN and row.job_id == "train-0"]) == 9_000 + 1_200
    )
    assert (
        gpu_seconds([by_key[key] for key in by_key if "serve-0" in key]) == 1_200
    )  # 0.333333333 h, to the second
    assert by_key["opencost/serve-0/2026-03-02T10:00:00Z"].cpu_milli == 1_500
    assert "opencost/web-0/2026-03-02T10:00:00Z/rest" not in by_key
    assert (export.reading.steps, export.reading.proves_until) == (2, TEN + 7200)


def test_what_cannot_be_read_is_kept_with_its_reason_or_refused(tmp_path: Path) -> None:
    bad: tuple[dict[str, Any], ...] = (
        {"gpuHours": "many"},
        {"gpuHours": -1},
        {"gpuHours": 1e300},
        {"start": "now"},
        {"end": "2026-03-02T10:00:00"},
        {"end": "2026-03-02T09:00:00Z"},
    )
    step = {f"pod-{number}": an_allocation(**changes) for number, changes in enumerate(bad)}
    path = written(
        tmp_path / "a.json", {"good": an_allocation(), **step, "none": {"cpuCoreHours": None}, "x": None}
    )
    rows = list(opencost.open_export(path).rows())
    assert sum(isinstance(row, BadRow) for row in rows) == len(bad) + 2
    assert sum(isinstance(row, UsageFact) for row in rows) == 2
    for text, code in (
        ("", "file-empty"),
        ("{", "opencost-other-format"),
        ('{"data": [{"a": {"x": 1}}]}', "opencost-other-format"),
        ("[" * 100_000, "opencost-other-format"),
    ):
        path.write_text(text)
        with pytest.raises(ConnectorError) as refused:
            opencost.open_export(path)
        assert refused.value.code == code


@pytest.mark.django_db
def test_a_file_is_imported_once_and_proved_and_never_beside_the_pods_themselves(tmp_path: Path) -> None:
    builders.a_cluster("kube")
    path = written(tmp_path / "allocation.json", {"train-0": an_allocation(gpuHours=2), "a\ud800\0b": None})
    first = run("import_usage", "kube", path, "--format", "opencost")
    again = run("import_usage", "kube", path, "--format", "opencost")
    assert (first["new"], first["quarantined"], again["new"], again["revised"]) == (2, 1, 0, 0)
    proof = run("prove", "--source", path, "--format", "opencost")
    assert (proof["holds"], proof["source"]["differing"]) == (True, 0)
    (gpus,) = [row for row in proof["sums"] if row["resource"] == "gpu"]
    assert Fraction(gpus["allocated"]) == 7_200

    written(path, {"train-0": an_allocation(gpuHours=2.5)})  # the hour as it was told later
    assert run("import_usage", "kube", path, "--format", "opencost")["revised"] == 1
    builders.a_cluster("pulled", kind="prometheus")
    assert "kind import" in refusal("import_usage", "pulled", str(path), "--format", "opencost")
