"""Each recorded version is read as it stands in its file, and the versions tell the same of the same job."""

from __future__ import annotations

from typing import Any

import pytest

from clusters.connectors.base import NodeSeen, NodeState, UsageFact
from tests.contracts.slurm_recorded import (
    LEGACY,
    MODERN,
    VERSIONS,
    Slurm,
    connector,
    facts,
    loaded,
    now_of,
    of,
    pytest_skip,
    serving,
)

pytestmark = pytest_skip
LOOK_BACK = 7200


def pulled(slurm: Slurm, **more: Any) -> tuple[dict[str, UsageFact], Any]:
    now = now_of(slurm)
    with serving(slurm) as address:
        source = connector(address, now=now)
        facts_by_key = facts(
            list(source.usage(since=now - LOOK_BACK, until=now, open_keys=more.get("open_keys", ())))
        )
    return facts_by_key, source


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def plainly(job: dict[str, Any]) -> dict[str, Any]:
    """What a person reads in a row, with nothing of the connector's."""
    time, tres = job["time"], {}
    for one in job["tres"]["allocated"]:
        tres[one["type"] + ("/" + one["name"] if one["name"] else "")] = one["count"]
    typed = {name[9:]: count for name, count in tres.items() if name.startswith("gres/gpu:")}
    start = max(time["start"], time["submission"]) if time["start"] else None
    return {
        "account": job["account"],
        "user": job["user"],
        "name": job["name"],
        "queue": job["partition"],
        "qos": job["qos"],
        "gpus": tres.get("gres/gpu", sum(typed.values())),
        "gpu_model": "+".join(typed),
        "memory_mib": tres.get("mem", 0),
        "cpu_milli": 1000 * tres.get("cpu", job["required"]["CPUs"] if start else 0),
        "submitted": time["submission"],
        "started": start,
        "ended": time["end"] or None,
        "suspended": time["suspended"],
        "seconds": None if start is None else time["elapsed"],
    }


def as_plain(fact: UsageFact) -> dict[str, Any]:
    until = fact.ended if fact.ended is not None else fact.seen_until
    seconds = None
    if fact.started is not None:
        assert until is not None
        seconds = until - fact.started - fact.suspended
    names = ("account", "user", "name", "queue", "qos", "gpus", "gpu_model", "memory_mib", "cpu_milli",
             "submitted", "started", "ended", "suspended")  # fmt: skip
    return {**{name: getattr(fact, name) for name in names}, "seconds": seconds}


def test_every_row_of_the_file_is_given_with_its_seconds_and_gpus(version: str) -> None:
    facts_by_key, source = pulled(of(version))
    expected = {
        f"{job['job_id']}@{job['time']['submission']}": plainly(job) for job in loaded(version)["jobs"]
    }
    assert {key: as_plain(fact) for key, fact in facts_by_key.items()} == expected
    assert len(expected) == 28
    assert source.api == version


def test_it_says_which_slurm_answered(version: str) -> None:
    _, source = pulled(of(version))
    meta = loaded(version)["meta"]
    assert source.release == (meta.get("slurm") or meta["Slurm"])["release"]


def test_the_pass_proves_all_but_the_last_minute(version: str) -> None:
    slurm = of(version)
    _, source = pulled(slurm)
    assert source.reading.complete_through == now_of(slurm) - 60
    assert source.reading.missing == []
    assert source.reading.notes == []


def test_the_nodes_with_gpus_are_seen(version: str) -> None:
    _, source = pulled(of(version))
    assert source.reading.nodes == [
        NodeSeen(name="gpu1", gpu_model="a100", gpus=4, state=NodeState.UP),
        NodeSeen(name="gpu2", gpu_model="a100", gpus=4, state=NodeState.UP),
        NodeSeen(name="gpu3", gpu_model="h100", gpus=8, state=NodeState.UP),
        NodeSeen(name="gpu4", gpu_model="h100", gpus=8, state=NodeState.UP),
    ]


def test_only_the_recorded_form_of_the_question_is_used(version: str) -> None:
    slurm = of(version)
    pulled(slurm)
    windows = [query for path, query in slurm.requests if path.endswith("/jobs") and "slurmdb" in path]
    assert windows
    assert all(set(query) == (MODERN if slurm.modern else LEGACY) for query in windows)
    others = [path for path, query in slurm.requests if not query and "/user/" not in path]
    assert others == [
        "/openapi/v3",
        f"/slurmdb/{version}/tres",
        f"/slurm/{version}/diag",
        f"/slurm/{version}/jobs",
        f"/slurm/{version}/nodes",
    ]


def test_a_second_pass_gives_the_same_rows_in_the_same_state(version: str) -> None:
    assert pulled(of(version))[0] == pulled(of(version))[0]


def test_the_order_of_the_rows_does_not_matter(version: str) -> None:
    slurm = of(version)
    slurm.jobs = slurm.jobs[::-1]
    assert pulled(slurm)[0] == pulled(of(version))[0]


def test_array_tasks_and_components_have_the_ids_that_sacct_prints(version: str) -> None:
    facts_by_key, _ = pulled(of(version))
    assert sorted(fact.job_id for fact in facts_by_key.values() if fact.name == "array") == [
        "12_0", "12_1", "12_2", "12_3", "12_4",
    ]  # fmt: skip
    assert sorted(fact.job_id for fact in facts_by_key.values() if fact.name == "het") == ["17+0", "17+1"]


def test_an_exit_code_is_told_only_where_slurm_tells_it_rightly(version: str) -> None:
    codes = {fact.name: fact.exit_code for fact in pulled(of(version))[0].values()}
    modern = ("7:0", "0:11", "0:0")
    assert (codes["failed"], codes["signalled"], codes["gpu1"]) == (
        modern if of(version).modern else ("", "", "")
    )


def test_open_runs_that_were_given_are_not_asked_for_again(version: str) -> None:
    slurm = of(version)
    running = next(job for job in slurm.jobs if job["name"] == "still-running")
    key = f"{running['job_id']}@{running['time']['submission']}"
    pulled(slurm, open_keys=[key])
    assert not [path for path, _ in slurm.requests if "/job/" in path]


def shape(fact: UsageFact) -> tuple[Any, ...]:
    """All that does not depend on when it ran."""
    return (
        fact.job_id, fact.account, fact.user, fact.queue, fact.qos, fact.gpus, fact.gpu_model, fact.cpu_milli,
        fact.memory_mib, fact.nodes, fact.requested, fact.time_limit, fact.state, fact.ended is None,
    )  # fmt: skip


def test_the_versions_agree_on_every_job() -> None:
    shapes = {
        name: sorted((fact.name, *map(str, shape(fact))) for fact in pulled(of(name))[0].values())
        for name in VERSIONS
    }
    first = shapes[VERSIONS[0]]
    assert {name: [row for row in rows if row not in first] for name, rows in shapes.items()} == {
        name: [] for name in VERSIONS
    }
