"""Accounting files, text and JSON, from the file to the ledger."""

from __future__ import annotations

from pathlib import Path

import pytest

from clusters.models import Quarantined
from tests import builders
from tests.contracts.sacct_exports import COLUMNS, row
from tests.contracts.slurm_recorded import a_job
from tests.hostile.mangling import INPUTS, REPEATED, Mangler
from tests.hostile.shell import refusal

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.larger]
"""Each import is committed, as it is outside of tests: within one transaction each empties its working tables by new
files, and the later the import, the longer it takes."""

TEXT = "\n".join(
    [
        "|".join(COLUMNS),
        row(),
        row(JobIDRaw="4712", State="RUNNING", End="Unknown"),
        row(JobIDRaw="4713.batch"),
        "",
    ]
).encode()
START = 1_772_441_000
JOBS = {
    "jobs": [a_job(number, submit=START, start=START, end=START + 3600) for number in (1, 2)],
    "errors": [],
}


@pytest.mark.parametrize("form", ["sacct", "sacct-json"])
def test_whatever_stands_in_a_file_is_a_row_a_reason_or_a_refusal(form: str, tmp_path: Path) -> None:
    builders.a_cluster("philly")
    chance, path, refused = Mangler(19), tmp_path / "export", 0
    for _ in range(INPUTS // 2):
        path.write_bytes(chance.spoil(TEXT) if form == "sacct" else chance.spoil_json(JOBS))
        message = refusal("import_usage", "philly", str(path), "--format", form, "--as-of", "2026-03-31")
        refused += bool(message)
        assert REPEATED not in message
    assert 0 < refused < INPUTS // 2
    assert Quarantined.objects.exists()
    assert not [row.reason for row in Quarantined.objects.all() if REPEATED in row.reason]


def test_a_list_among_the_jobs_is_one_row_in_quarantine(tmp_path: Path) -> None:
    builders.a_cluster("philly")
    path = tmp_path / "export.json"
    path.write_text(f'{{"jobs": [[{{"job_id": 1}}], {"[" * 100_000}{"]" * 100_000}], "errors": []}}')
    refusal("import_usage", "philly", str(path), "--format", "sacct-json", "--as-of", "2026-03-31")
    assert Quarantined.objects.count() <= 2
