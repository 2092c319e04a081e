"""Accounting files, text and JSON, from the file to the ledger."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clusters.models import Quarantined
from tests import builders
from tests.contracts.sacct_exports import COLUMNS, row
from tests.contracts.slurm_recorded import a_job
from tests.contracts.test_accounting_logs import GRID_ENGINE, LSF, E, S
from tests.contracts.test_opencost import an_allocation
from tests.contracts.test_spend_logs import a_request
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
LOGS = {
    "pbs": f"{S}\n03/02/2026 08:30:00;z;7.pbs;\n03/02/2026 08:40:30;r;7.pbs;\n{E}\n".encode(),
    "lsf": f"{LSF.format(rusage='ngpus_physical=2.00', run=7200, hosts=0)}\n".encode() * 2,
    "grid-engine": GRID_ENGINE.format(job=7, category="-l gpu=2", pe="NONE:1", failed="0").encode() * 2,
    "opencost": json.dumps({"data": [{"a": an_allocation(), "b": an_allocation()}]}).encode(),
    "litellm": f"{json.dumps(a_request())}\n".encode() * 2,
}
JOBS = {
    "jobs": [a_job(number, submit=START, start=START, end=START + 3600) for number in (1, 2)],
    "errors": [],
}


@pytest.mark.parametrize(
    "form", ["sacct", *(pytest.param(form, marks=pytest.mark.peers) for form in ("sacct-json", *LOGS))]
)
def test_whatever_stands_in_a_file_is_a_row_a_reason_or_a_refusal(form: str, tmp_path: Path) -> None:
    builders.a_cluster("philly")
    chance, path, refused = Mangler(19), tmp_path / "export", 0
    for _ in range(INPUTS):
        text = chance.spoil_json(JOBS) if form == "sacct-json" else chance.spoil(LOGS.get(form, TEXT))
        path.write_bytes(text)
        message = refusal("import_usage", "philly", str(path), "--format", form, "--as-of", "2026-03-31")
        refused += bool(message)
        assert REPEATED not in message
    assert 0 < refused < INPUTS or form in LOGS  # one record among the first lines makes a log
    assert Quarantined.objects.exists()
    assert not [row.reason for row in Quarantined.objects.all() if REPEATED in row.reason]


def test_a_list_among_the_jobs_is_one_row_in_quarantine(tmp_path: Path) -> None:
    builders.a_cluster("philly")
    path = tmp_path / "export.json"
    path.write_text(f'{{"jobs": [[{{"job_id": 1}}], {"[" * 100_000}{"]" * 100_000}], "errors": []}}')
    refusal("import_usage", "philly", str(path), "--format", "sacct-json", "--as-of", "2026-03-31")
    assert Quarantined.objects.count() <= 2
