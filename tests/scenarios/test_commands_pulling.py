"""`pull_usage` as Op types it."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from django.core.management import call_command

from billing.rating import pulls
from clusters.connectors.base import ConnectorError
from portal.ops.cli import RefusedError
from tests import builders
from tests.schedulers import Scheduler, a_connection

pytestmark = pytest.mark.django_db


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> Scheduler:
    """What every connection reaches."""
    scheduler = Scheduler()
    defaults = pulls.pull.__kwdefaults__ or {}
    monkeypatch.setitem(defaults, "connect", scheduler.connect)
    return scheduler


def typed(*words: str) -> tuple[int, str]:
    """Exit code and output."""
    out = io.StringIO()
    try:
        call_command("pull_usage", *words, stdout=out)
    except SystemExit as end:
        return int(end.code or 0), out.getvalue()
    return 0, out.getvalue()


def answer_of(*words: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(typed(*words, "--json")[1])
    return answer


def test_op_pulls_and_reads_what_came(slurm: Scheduler) -> None:
    a_connection(first_usage_from=None, look_back=24)
    slurm.rows = [builders.a_job(started="2026-03-01 10:00", ended=None, seen_until="2026-03-01 11:00"),
                  builders.a_bad_row()]  # fmt: skip
    code, text = typed("gpu1")
    assert code == 0
    assert text.startswith("gpu1: 2 rows read in one sync: 1 new, 0 unchanged, 0 revised, 1 quarantined.\n")
    assert "Quarantined rows wait with their reason" in text
    assert "It is complete through 20" in text
    slurm.forgotten = {slurm.rows[0].source_key}
    assert (
        "1 run is open here and no longer known to the scheduler: see the cluster's page." in typed("gpu1")[1]
    )
    assert (answer_of("gpu1")["vanished"], answer_of("gpu1")["outcome"]) == (0, "done")


def test_a_window_is_read_again_in_the_clusters_zone(slurm: Scheduler) -> None:
    connection = a_connection()
    connection.cluster.timezone = "Europe/Berlin"
    connection.cluster.save()
    answer = answer_of("gpu1", "--since", "2026-03-01", "--until", "2026-03-02T00:00:00Z")
    assert (answer["syncs"], answer["complete_through"]) == (2, "2026-03-02T00:00:00Z")
    assert slurm.windows[0][0] == int(builders.at("2026-02-28 23:00").timestamp())


def test_what_failed_is_said_and_the_code_is_one(slurm: Scheduler) -> None:
    a_connection()
    slurm.fails = ConnectorError("slurmdbd is down: start it with `systemctl start slurmdbd`.", retry=True)
    code, text = typed("gpu1", "--since", "2026-03-01", "--until", "2026-03-02")
    assert code == 1
    assert "It broke off: slurmdbd is down: start it with `systemctl start slurmdbd`.\n" in text
    assert "No time of it has been read completely yet." in text
    answer = answer_of("gpu1", "--since", "2026-03-01", "--until", "2026-03-02")
    assert (answer["outcome"], answer["error"][:16]) == ("failed", "slurmdbd is down")


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["nowhere"], 2, "There is no cluster 'nowhere'"),
        (["gpu1", "--since", "2031-01-01"], 2, "--since 2031-01-01T00:00:00Z lies in the future."),
        (["gpu1", "--until", "2026-03-01"], 2, "--until needs --since"),
        (["gpu1", "--since", "2026-03-02", "--until", "2026-03-01"], 1, "The window ends before it begins."),
        (["files"], 1, "files has no connection: describe one in a file for `apply`"),
    ],
)
def test_what_cannot_be_done_is_refused_in_a_sentence(words: list[str], code: int, sentence: str) -> None:
    a_connection()
    builders.a_cluster("files")
    with pytest.raises(RefusedError) as refused:
        typed(*words)
    assert (refused.value.returncode, sentence in str(refused.value)) == (code, True)


def test_files_and_passes_can_follow_each_other(slurm: Scheduler) -> None:
    """The same job from a file and from a pull is one job."""
    cluster = a_connection().cluster
    job = builders.a_job(started="2026-03-01 10:00", ended="2026-03-01 11:00")
    builders.ingest(cluster, job, as_of="2026-03-01 11:00")
    slurm.rows = [job]
    answer = answer_of("gpu1", "--since", "2026-03-01", "--until", "2026-03-01T12:00:00Z")
    assert (answer["new"], answer["unchanged"], answer["complete_through"]) == (0, 1, "2026-03-01T12:00:00Z")
