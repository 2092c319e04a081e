"""Odd exports of other sites, through the operator's command: every line has a place, or the file is refused.

How each count follows from its file is written in tests/contracts/test_sacct_edge_files.py.
"""

from __future__ import annotations

import pytest
from django.core.management.base import CommandError

from clusters.models import Quarantined, UsageRecord
from tests import builders
from tests.contracts.test_sacct_edge_files import XDMOD
from tests.scenarios.real import data, run

pytestmark = pytest.mark.django_db

FOLDER = "accounting/slurm_edge_cases/"
NAMED = ("--columns", ",".join(XDMOD))
OTHER = ("--delimiter", "|#")


@pytest.mark.parametrize(
    ("file", "options", "new", "unchanged", "quarantined", "steps"),
    [
        ("gcm_sample-sacct-output.txt", (), 0, 0, 0, 68),
        ("gcm_sample-sacct-running-output.txt", OTHER, 0, 0, 0, 10),
        ("gcm_sample-sacct-output-invalid-utf8.txt", (), 2, 0, 0, 9),
        ("gcm_sample-sacct-output-with-invalid-lines.txt", (), 0, 0, 1, 0),
        ("gcm_sample-sacct-one-multiline.txt", OTHER, 2, 0, 0, 2),
        ("gcm_sample-sacct-fake-line-break.txt", OTHER, 2, 0, 0, 2),
        ("gcm_sample-sacct-multiple-multiline.txt", OTHER, 2, 2, 0, 2),  # one job three times
        ("xdmod_accounting-logs.log", NAMED, 4, 0, 0, 0),
        ("xdmod_accounting-logs-with-job-arrays.log", NAMED, 1, 5, 0, 0),  # six ids of one job, else equal
        ("xdmod_non-ended-job-state.log", NAMED, 2, 0, 0, 0),
        ("xdmod_unknown-job-state.log", NAMED, 2, 0, 0, 0),
        ("xdmod_utf8-multibyte-chars.log", NAMED, 1, 0, 0, 0),
    ],
)
def test_every_line_has_its_place(
    file: str, options: tuple[str, ...], new: int, unchanged: int, quarantined: int, steps: int
) -> None:
    builders.a_cluster("odd")
    result = run("import_usage", "odd", data(FOLDER + file), *options)
    counts = (result["new"], result["unchanged"], result["quarantined"], result["steps"])
    assert counts == (new, unchanged, quarantined, steps)
    assert (result["read"], result["revised"]) == (new + unchanged + quarantined, 0)

    again = run("import_usage", "odd", data(FOLDER + file), *options)
    assert (again["new"], again["revised"], again["quarantined"]) == (0, 0, quarantined)
    assert Quarantined.objects.count() == quarantined
    assert run("prove")["holds"]


@pytest.mark.parametrize(
    ("file", "sentence"),
    [
        ("apel_sacct.log", "There is no header line"),
        ("gcm_sample-sacct-fake-line-break.txt", "import it with --delimiter '|#'"),
        ("gcm_sample-sacct-output-midnight-edge-case-small.txt", "The export lacks JobIDRaw"),
        ("gcm_sample-sacctmgr-qos.txt", "This is not a listing of jobs"),
        ("xdmod_alloc_tres_gpu_count.json", "There is no header line"),
        ("xdmod_accounting-logs.log", "name the columns with --columns"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_whole(file: str, sentence: str) -> None:
    builders.a_cluster("odd")
    with pytest.raises(CommandError, match=sentence.replace("|", r"\|")):
        run("import_usage", "odd", data(FOLDER + file))
    assert not UsageRecord.objects.exists()
    assert not Quarantined.objects.exists()
