"""Exports as an operator would make them, and what the connector says of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from clusters.connectors.base import BadRow, Reading, UsageFact
from clusters.connectors.sacct.text_export import open_export

UTC = ZoneInfo("UTC")
LOS_ANGELES = ZoneInfo("America/Los_Angeles")
DATA = Path(__file__).parents[2].parent / "shared" / "data"

COLUMNS = [
    "JobIDRaw", "JobID", "JobName", "User", "Account", "Partition", "QOS", "State", "ExitCode", "Submit",
    "Start", "End", "ElapsedRaw", "Suspended", "Timelimit", "NNodes", "NCPUS", "ReqTRES", "AllocTRES",
    "NodeList",
]  # fmt: skip

BENS_JOB = {
    "JobIDRaw": "4711",
    "JobID": "4711",
    "JobName": "train",
    "User": "ben",
    "Account": "vision",
    "Partition": "gpu",
    "QOS": "normal",
    "State": "COMPLETED",
    "ExitCode": "0:0",
    "Submit": "2026-01-05T08:00:00",  # 1767600000
    "Start": "2026-01-05T08:10:00",
    "End": "2026-01-05T09:10:00",
    "ElapsedRaw": "3600",
    "Suspended": "00:00:00",
    "Timelimit": "1-00:00:00",
    "NNodes": "1",
    "NCPUS": "16",
    "ReqTRES": "cpu=16,gres/gpu=2,mem=64G,node=1",
    "AllocTRES": "billing=16,cpu=16,gres/gpu:a100=2,gres/gpu=2,mem=64G,node=1",
    "NodeList": "node01",
}


@dataclass
class ReadExport:
    facts: list[UsageFact]
    bad: list[BadRow]
    reading: Reading

    @property
    def fact(self) -> UsageFact:
        assert not self.bad, self.bad[0].reason
        (fact,) = self.facts
        return fact

    @property
    def refused(self) -> BadRow:
        assert not self.facts
        (bad,) = self.bad
        return bad


def row(**changed: str) -> str:
    return "|".join((BENS_JOB | changed)[name] for name in COLUMNS)


def read_export(
    path: Path, *, zone: ZoneInfo = UTC, columns: list[str] | None = None, delimiter: str = "|"
) -> ReadExport:
    export = open_export(path, zone=zone, columns=columns, delimiter=delimiter)
    rows = list(export.rows())
    return ReadExport(
        [row for row in rows if isinstance(row, UsageFact)],
        [row for row in rows if isinstance(row, BadRow)],
        export.reading,
    )


def read_rows(
    tmp_path: Path, *rows: str, zone: ZoneInfo = UTC, header: str = "|".join(COLUMNS)
) -> ReadExport:
    path = tmp_path / "export.sacct"
    path.write_text("\n".join([header, *rows, ""]), encoding="utf-8", newline="")
    return read_export(path, zone=zone)


def shared(path: str) -> Path:
    file = DATA / path
    if not file.exists():
        pytest.skip(f"the real cluster data is not here: put it into ../shared/data ({path})")
    return file
