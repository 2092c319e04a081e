"""`sacct --json` in a file gives the rows that slurmrestd gives, whatever the size and the end of the file."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusters.connectors.base import BadRow, ConnectorError, UsageFact
from clusters.connectors.sacct import json_export
from clusters.connectors.sacct.json_export import open_export
from clusters.connectors.slurm.json_stream import Splitter
from clusters.models import UsageRecord
from tests import builders
from tests.contracts.slurm_recorded import NOW, VERSIONS, a_job, loaded, pytest_skip, recorded
from tests.scenarios.real import run

JOBS = [a_job(n, submit=NOW + n, start=NOW + n, end=NOW + n + 60, steps=[{}] * n) for n in range(1, 4)]


def a_file(folder: Path, value: Any) -> Path:
    path = folder / "dump.json"
    path.write_bytes(value if isinstance(value, bytes) else json.dumps(value, indent=2).encode())
    return path


@pytest_skip
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ["slurmdb-jobs-nofilter.json", "slurmdb-jobs-window-nosteps.json"])
def test_every_job_of_every_version_is_a_fact(version: str, name: str, tmp_path: Path) -> None:
    export = open_export(a_file(tmp_path, recorded(version, name)))
    rows = {row.source_key: row for row in export.rows()}
    jobs = loaded(version, name)["jobs"]
    assert set(rows) == {f"{job['job_id']}@{job['time']['submission']}" for job in jobs}
    assert all(isinstance(row, UsageFact) for row in rows.values())
    assert export.reading.steps == sum(len(job["steps"]) for job in jobs)
    latest = max(job["time"]["end"] or job["time"]["start"] + job["time"]["elapsed"] for job in jobs)
    assert export.reading.proves_until == latest


def test_gzip_and_a_second_reading_give_the_same(tmp_path: Path) -> None:
    path = tmp_path / "dump.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"meta": {}, "errors": [], "jobs": JOBS}).encode()))
    export = open_export(path)
    assert list(export.rows()) == list(export.rows())
    assert export.reading.steps == 6


def test_a_file_that_is_cut_off_says_so_with_its_last_row(tmp_path: Path) -> None:
    whole = json.dumps({"jobs": JOBS, "errors": []}).encode()
    for at in range(len(whole) - 1, 20, -97):
        rows = list(open_export(a_file(tmp_path, whole[:at])).rows())
        assert isinstance(rows[-1], BadRow)
        assert rows[-1].code == "unfinished-job"
        assert all(isinstance(row, UsageFact) for row in rows[:-1])


def test_a_job_of_an_unknown_shape_is_put_aside(tmp_path: Path) -> None:
    odd = {**JOBS[0], "time": "noon"}
    rows = list(open_export(a_file(tmp_path, {"jobs": [odd, JOBS[1]]})).rows())
    assert [getattr(row, "code", "") for row in rows] == ["shape", ""]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "dump.json is empty."),
        (b"JobIDRaw|Submit\n", "is not JSON. If it is text with columns, leave out --format"),
        ({"nodes": []}, 'has no "jobs" in it: make it with sacct --json'),
        ({"jobs": [], "errors": [{"error_number": 7000, "error": "No connection"}]}, 'dump.json ("No connection")'),
        (b'{"jobs":[]}]', "a bracket closes what was never opened"),
    ],
)  # fmt: skip
def test_a_file_that_is_none_is_refused(content: Any, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(ConnectorError) as caught:
        list(open_export(a_file(tmp_path, content)).rows())
    assert sentence in str(caught.value)
    assert not caught.value.retry


def test_nothing_found_is_no_failure_of_sacct(tmp_path: Path) -> None:
    path = a_file(tmp_path, {"jobs": [], "errors": [{"error_number": 9003}]})
    assert list(open_export(path).rows()) == []


def test_rows_of_several_clusters_are_told(tmp_path: Path) -> None:
    export = open_export(a_file(tmp_path, {"jobs": [JOBS[0], {**JOBS[1], "cluster": "b"}]}))
    assert len(list(export.rows())) == 2
    assert "several clusters (lab, b)" in export.reading.notes[0]


values = st.recursive(
    st.one_of(st.none(), st.integers(), st.text(alphabet='ab"\\{}[]jos:,')),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text('jobs"{['), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(
    jobs=st.lists(st.dictionaries(st.text('jobs"\\'), values, max_size=4), max_size=5),
    before=values, after=values, block=st.integers(1, 60),
)  # fmt: skip
def test_any_text_is_cut_where_its_jobs_are(jobs: Any, before: Any, after: Any, block: int) -> None:
    text = json.dumps({"meta": before, "jobs": jobs, "errors": after}).encode()
    splitter = Splitter()
    cuts = range(0, len(text), block)
    pieces = [json.loads(piece) for at in cuts for piece in splitter.feed(text[at : at + block])]
    splitter.end()
    assert pieces == jobs
    assert (splitter.has_jobs, splitter.stray, splitter.texts) == (True, False, 1)
    assert json.loads(splitter.around) == {"meta": before, "jobs": [], "errors": after}
    assert splitter.rest == b""


@pytest.mark.django_db
def test_op_imports_it_with_the_command(tmp_path: Path) -> None:
    builders.a_cluster("farm")
    start = 1_767_600_000
    path = a_file(tmp_path, {"jobs": [a_job(1, submit=start, start=start, end=start + 3600)]})
    report = run("import_usage", "farm", path, "--format", "sacct-json")
    assert (report["new"], report["as_of"]) == (1, "2026-01-05T09:00:00Z")
    record = UsageRecord.objects.get()
    assert (record.source_key, record.gpus, record.gpu_model) == ("1@1767600000", 1, "a100")
    assert json_export.COMMAND.startswith("sacct --json")
