"""Op's files of every other scheduler, spoilt as it happens: cut, mixed, of another program, of a wrong clock.

Nothing of that is billed, nothing is lost, and what is whole beside it is read.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clusters.models import Cluster, Quarantined, UsageRecord
from tests import builders, sums
from tests.contracts.test_accounting_logs import GRID_ENGINE, LSF, E
from tests.contracts.test_opencost import an_allocation
from tests.contracts.test_spend_logs import a_request
from tests.hostile.shell import refusal
from tests.scenarios.real import run

pytestmark = pytest.mark.django_db

GRID_ENGINE_GPUS = {"category": "-l gpu=2", "pe": "NONE:1", "failed": "0"}
RECORDS = {
    "pbs": (f"{E}\n", f"{E.replace('7.pbs', '8.pbs')}\n"),
    "lsf": (
        LSF.format(rusage="ngpus_physical=2.00", run=7200, hosts=0) + "\n",
        LSF.format(rusage="ngpus_physical=2.00", run=7200, hosts=0).replace("386", "387") + "\n",
    ),
    "grid-engine": (
        GRID_ENGINE.format(job=7, **GRID_ENGINE_GPUS),
        GRID_ENGINE.format(job=8, **GRID_ENGINE_GPUS),
    ),
    "litellm": (
        json.dumps(a_request()) + "\n",
        json.dumps(a_request(request_id="chatcmpl-2")) + "\n",
    ),
}
"""Two whole records of each log. All moments are of 2026-03-02."""
FUTURE = {"17724": "47724", "03/02/2026": "03/02/2121", "2026-": "2121-"}


def of_the_future(text: str) -> str:
    for now, later in FUTURE.items():
        text = text.replace(now, later)
    return text


def imported(path: Path, form: str, text: str) -> tuple[int, set[str]]:
    """Runs or requests that stand in the ledger afterwards, and the reasons of those that do not."""
    path.write_text(text)
    run("import_usage", "lab", path, "--format", form)
    jobs = UsageRecord.objects.values_list("job_id", flat=True).distinct().count()
    assert run("prove")["holds"]
    return jobs, set(Quarantined.objects.values_list("code", flat=True))


@pytest.fixture(autouse=True)
def _lab() -> None:
    builders.a_cluster("lab")
    sums.tokens()


@pytest.mark.parametrize("form", RECORDS)
def test_a_cut_file_bills_its_whole_records_and_keeps_the_cut_one(form: str, tmp_path: Path) -> None:
    whole, cut = RECORDS[form]
    jobs, reasons = imported(tmp_path / "log", form, whole + cut[: len(cut) * 2 // 3])
    assert jobs == 1
    assert len(reasons) == 1
    imported(tmp_path / "log", form, whole + cut)  # copied again, all of it is there
    assert UsageRecord.objects.values_list("job_id", flat=True).distinct().count() == 2


@pytest.mark.parametrize("form", RECORDS)
def test_records_of_another_log_among_its_own_are_kept_with_a_reason(form: str, tmp_path: Path) -> None:
    (other,) = [text for name, (text, _) in RECORDS.items() if name == ("lsf" if form == "pbs" else "pbs")]
    jobs, reasons = imported(tmp_path / "log", form, RECORDS[form][0] + other + RECORDS[form][1])
    assert jobs == 2
    assert reasons


@pytest.mark.parametrize("form", RECORDS)
def test_a_log_of_another_program_is_refused(form: str, tmp_path: Path) -> None:
    for other, (text, _) in RECORDS.items():
        if other != form:
            (tmp_path / "log").write_text(text)
            assert refusal("import_usage", "lab", str(tmp_path / "log"), "--format", form)
    assert not UsageRecord.objects.exists()


@pytest.mark.parametrize("form", RECORDS)
def test_a_record_of_a_clock_that_is_ahead_bills_nothing_and_proves_nothing(
    form: str, tmp_path: Path
) -> None:
    jobs, reasons = imported(tmp_path / "log", form, RECORDS[form][0] + of_the_future(RECORDS[form][1]))
    assert (jobs, reasons) == (1, {"from-the-future"})
    through = Cluster.objects.get().complete_through
    assert through is None or through.year == 2026


def test_an_answer_of_opencost_that_is_cut_or_of_a_clock_that_is_ahead(tmp_path: Path) -> None:
    path = tmp_path / "answer.json"
    text = json.dumps({"data": [{"a": an_allocation()}]})
    path.write_text(text[:-20])
    assert refusal("import_usage", "lab", str(path), "--format", "opencost")
    path.write_text(text.replace("2026-03", "2121-03"))
    run("import_usage", "lab", path, "--format", "opencost")
    assert set(Quarantined.objects.values_list("code", flat=True)) == {"from-the-future"}
    assert not UsageRecord.objects.exists()
