"""Which slurmrestd this is: its versions, its cluster, and rows that are not ours to take."""

from __future__ import annotations

import json
from typing import Any

import pytest

from clusters.connectors.base import ConnectorError, Row
from tests.contracts.slurm_recorded import NOW, Reply, Slurm, a_job, connector, live_jobs, refused, serving


@pytest.mark.parametrize(
    ("offered", "sentence"),
    [
        (("v0.0.36", "v0.0.37"), "speaks only v0.0.37: Slurm 22.05 or later is needed"),
        (("nothing",), "offers no accounting"),
    ],
)
def test_a_slurm_that_is_too_old_or_without_accounting(offered: tuple[str, ...], sentence: str) -> None:
    error = refused(Slurm(offered=offered))
    assert sentence in str(error)
    assert not error.retry


def test_the_highest_version_that_both_know_is_spoken() -> None:
    offered = ("v0.0.39", "v0.0.42", "v0.0.41", "v0.0.46", "v0.0.47")
    with serving(Slurm(offered=offered)) as address:
        source = connector(address, now=NOW)
        list(source.usage(since=NOW - 3600, until=NOW, open_keys=()))
    assert source.api == "v0.0.42"


def test_a_newer_version_alone_is_tried_once_its_counts_agree() -> None:
    slurm = Slurm(version="v0.0.47", jobs=[a_job(1, submit=NOW - 900, start=NOW - 800, end=NOW - 700)])
    both = Reply(200, json.dumps({"jobs": slurm.jobs, "errors": []}).encode())
    slurm.replies["/slurmdb/v0.0.47/jobs"] = lambda query: both if len(query) == 2 else None
    with serving(slurm) as address:
        source = connector(address, now=NOW)
        assert len(list(source.usage(since=NOW - 3600, until=NOW, open_keys=()))) == 1
    assert "v0.0.47 is newer than this release knows" in source.reading.notes[0]


def test_a_newer_version_that_counts_otherwise_is_refused() -> None:
    slurm = Slurm(version="v0.0.47", jobs=[a_job(1, submit=NOW - 900, start=NOW - 800, end=NOW - 700)])
    none = Reply(200, b'{"jobs":[],"errors":[]}')
    slurm.replies["/slurmdb/v0.0.47/jobs"] = lambda query: none if len(query) == 2 else None
    error = refused(slurm)
    assert "it counts other rows" in str(error)
    assert not error.retry


def test_another_cluster_answers() -> None:
    slurm = Slurm(meta={"slurm": {"release": "25.11.1", "cluster": "other"}})
    assert "answers for the cluster other, and this connection is for lab" in str(refused(slurm))


def test_rows_of_another_cluster_are_left_and_counted() -> None:
    mine = a_job(1, submit=NOW - 900, start=NOW - 800, end=NOW - 700)
    slurm = Slurm(jobs=[mine, {**mine, "job_id": 2, "cluster": "other"}], live=live_jobs())
    with serving(slurm) as address:
        source = connector(address, now=NOW)
        rows = list(source.usage(since=NOW - 3600, until=NOW, open_keys=()))
    assert [row.source_key for row in rows] == [f"1@{NOW - 900}"]
    assert source.reading.notes == [
        "Of the cluster other 1 row came, which this connection does not take: it is for lab."
    ]


def test_open_rows_of_another_cluster_are_not_missed() -> None:
    mine = a_job(1, submit=NOW - 9000, start=NOW - 9000, end=NOW - 700)
    theirs = {**a_job(2, submit=NOW - 9000, start=NOW - 9000), "cluster": "other"}
    with serving(slurm := Slurm(jobs=[mine, theirs])) as address:
        source = connector(address, now=NOW)
        assert len(list(source.usage(since=NOW - 9000, until=NOW, open_keys=()))) == 1
    assert source.reading.missing == []
    assert not [path for path, _ in slurm.requests if "/job/" in path]


def test_only_rows_of_another_cluster_are_an_error() -> None:
    other = {**a_job(1, submit=NOW - 900, start=NOW - 800, end=NOW - 700), "cluster": "other"}
    assert "answers for the cluster other" in str(refused(Slurm(jobs=[other])))


def test_one_row_of_an_unknown_shape_does_not_take_the_others_with_it() -> None:
    good = a_job(1, submit=NOW - 900, start=NOW - 800, end=NOW - 700)
    slurm = Slurm(jobs=[good, {**good, "job_id": 2, "tres": {"allocated": "cpu=4"}}])
    with serving(slurm) as address:
        bad, fact = connector(address, now=NOW).usage(since=NOW - 3600, until=NOW, open_keys=())
    assert getattr(bad, "code", "") == "shape"
    assert '"cpu=4"' in getattr(bad, "raw", "")
    assert fact.source_key == f"1@{NOW - 900}"


@pytest.mark.parametrize("meta", [None, {"slurm": {"release": "25.11.1", "cluster": "lab"}}])
def test_without_a_name_the_rows_of_one_cluster_only_are_taken(meta: dict[str, Any] | None) -> None:
    mine = a_job(1, submit=NOW - 900, start=NOW - 800, end=NOW - 700)
    theirs = [{**mine, "job_id": 3, "cluster": "west"}]
    theirs += [mine, {**mine, "job_id": 2, "cluster": "north"}] if not meta else []
    shared = Slurm(jobs=theirs, live=live_jobs(), meta=meta or {})
    with serving(shared) as address:
        source = connector(address, now=NOW, cluster="")
        rows: list[Row] = []
        with pytest.raises(ConnectorError) as caught:
            rows += source.usage(since=NOW - 3600, until=NOW, open_keys=())
    names = "lab, west" if meta else "lab, north, west"
    assert str(caught.value) == (
        f"Rows of several clusters come ({names}), and the connection does not say which of them this is: write its "
        "ClusterName into the connection as Slurm's cluster name (slurm_cluster in a configuration file)."
    )
    assert (rows, caught.value.retry, source.reading.complete_through) == ([], False, None)

    one = Slurm(jobs=[mine, {**mine, "job_id": 2, "cluster": ""}], live=live_jobs())
    with serving(one) as address:
        source = connector(address, now=NOW, cluster="")
        assert len(list(source.usage(since=NOW - 3600, until=NOW, open_keys=()))) == 2
