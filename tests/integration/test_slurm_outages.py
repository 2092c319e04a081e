"""A part of a real Slurm is away, or will not have us: Op reads why, nothing is lost, and the next pull mends it."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import pytest

from clusters.models import Cluster, Connection, Pull, UsageRecord
from portal.core.vault import seal
from tests.integration.slurm_gate import opened
from tests.integration.slurm_lab import Lab
from tests.integration.slurm_oracle import oracle
from tests.integration.slurm_pulls import (
    DAY,
    come_to_agree,
    compare,
    connected,
    fails,
    ledger,
    moment,
    pull,
    record,
    refused,
    watermark,
)

pytestmark = pytest.mark.usefixtures("transactional_db")

FILL = 300  # jobs over the last thirty days


@pytest.fixture
def filled(slurm_lab: Lab) -> Lab:
    """A lab that has a past, so that a first pull takes several passes."""
    if not slurm_lab.filled:
        slurm_lab.does("fill", FILL)
        slurm_lab.filled = FILL
    return slurm_lab


def both(storm: Cluster, calm: Cluster) -> tuple[dict[str, Any], dict[str, Any]]:
    pull(storm)
    pull(calm)
    return ledger(storm), ledger(calm)


def test_what_keeps_the_records_goes_away_in_the_middle_of_pulls(filled: Lab) -> None:
    """First slurmdbd, then its database, then slurmrestd, each before a later question of a first pull."""
    first = moment(filled.began - 2 * DAY)
    calm = connected(filled, "calm", first_usage_from=first)
    pull(calm)

    with opened(filled.url) as gate:
        for daemon, word in (("slurmdbd", "slurmdbd"), ("mariadb", "database"), ("slurmrestd", "broke")):
            storm = connected(filled, f"without-{daemon}", first_usage_from=first, url=gate.url)
            gate.before(7, partial(filled.stop, daemon))  # a day takes five or six
            try:
                error = fails(storm)
                stored, mark = ledger(storm), watermark(storm)
                assert 0 < len(stored) < len(ledger(calm))
                assert (
                    mark == Pull.objects.filter(cluster=storm, outcome=Pull.Outcome.DONE).latest("pk").as_of
                )
                assert word in error
                refused(storm)  # and again, as long as it lasts
                assert Connection.objects.get(cluster=storm).failures == 2
            finally:
                filled.start()

            come_to_agree(partial(both, storm, calm))
            assert (watermark(storm) or mark) > mark  # type: ignore[operator]
            connection = Connection.objects.get(cluster=storm)
            assert (connection.failures, connection.last_error) == (0, "")


def test_without_slurmctld_usage_is_read_and_the_next_pull_knows_the_nodes_again(slurm_lab: Lab) -> None:
    """What is billed is with slurmdbd; slurmctld only tells of nodes."""
    cluster = connected(slurm_lab)
    with opened(slurm_lab.url) as gate:
        Connection.objects.filter(cluster=cluster).update(base_url=gate.url)
        gate.before(1, lambda: slurm_lab.stop("slurmctld"))
        try:
            pull(cluster)
            compare(cluster, oracle(slurm_lab, since=slurm_lab.began))
            notes = Pull.objects.filter(cluster=cluster).latest("pk").notes
            assert "slurmctld" in notes
            assert not cluster.capacity.exists()
        finally:
            slurm_lab.start()

        pull(cluster)

    assert {row.node: row.gpus for row in cluster.capacity.all()} == {
        "gpu1": 4,
        "gpu2": 4,
        "gpu3": 8,
        "gpu4": 8,
    }


@pytest.mark.long  # slurmctld takes its time until it tries slurmdbd again
def test_what_ends_while_slurmdbd_is_away_comes_with_its_true_end(slurm_lab: Lab) -> None:
    cluster = connected(slurm_lab)
    job = slurm_lab.submits("ada", "acme_research", "sleep 8", "-p", "a100", "--gres=gpu:a100:1")
    slurm_lab.knows(job, "RUNNING")
    pull(cluster)
    (key,) = keys_of(cluster, job)
    assert record(cluster, key).ended is None

    slurm_lab.stop("slurmdbd")
    assert "slurmdbd" in refused(cluster)
    slurm_lab.is_over(job)
    assert record(cluster, key).ended is None
    slurm_lab.start()
    slurm_lab.has_ended(job)
    pull(cluster)

    expected = oracle(slurm_lab, since=slurm_lab.began)[key]
    run = record(cluster, key)
    assert run.ended is not None
    assert run.started is not None
    assert (run.gpus, run.ended - run.started) == (expected.gpus, expected.seconds)


def test_an_expired_token_is_told_and_a_new_one_goes_on(slurm_lab: Lab) -> None:
    cluster = connected(slurm_lab, token=slurm_lab.token(seconds=2))
    time.sleep(3)

    assert "token" in refused(cluster)
    assert not UsageRecord.objects.exists()
    assert watermark(cluster) is None

    enters(cluster, token=slurm_lab.token())
    pull(cluster)
    compare(cluster, oracle(slurm_lab, since=slurm_lab.began))


def test_a_token_of_another_key_is_told(slurm_lab: Lab) -> None:
    cluster = connected(slurm_lab)
    Connection.objects.filter(cluster=cluster).update(
        jwt_key=seal("bm90IHRoZSBrZXkgb2YgdGhpcyBjbHVzdGVyLCBubywgbm8uLi4=")
    )
    assert "token" in refused(cluster)
    Connection.objects.filter(cluster=cluster).update(jwt_key=seal(slurm_lab.key()))
    pull(cluster)
    compare(cluster, oracle(slurm_lab, since=slurm_lab.began))


def test_an_ordinary_users_token_is_refused_where_it_would_see_its_own_jobs_alone(slurm_lab: Lab) -> None:
    """slurmrestd answers 200 with a part of the jobs, and nothing in the answer says so."""
    with slurm_lab.configured(slurmdbd="PrivateData=jobs"):
        cluster = connected(slurm_lab, user="ada", token=slurm_lab.token("ada"))

        assert "AdminLevel" in refused(cluster)
        assert not UsageRecord.objects.exists()
        assert watermark(cluster) is None

        enters(cluster, user="portal", token=slurm_lab.token())
        pull(cluster)
        compare(cluster, oracle(slurm_lab, since=slurm_lab.began))


def test_the_socket_and_a_path_before_it_do_as_well(slurm_lab: Lab) -> None:
    cluster = connected(slurm_lab, url="http://localhost", unix_socket=str(slurm_lab.socket))
    pull(cluster)
    compare(cluster, oracle(slurm_lab, since=slurm_lab.began))


def enters(cluster: Cluster, *, token: str, user: str = "portal") -> None:
    Connection.objects.filter(cluster=cluster).update(token=seal(token), user=user)


def keys_of(cluster: Cluster, job: str) -> list[str]:
    return list(UsageRecord.objects.filter(cluster=cluster, job_id=job).values_list("source_key", flat=True))
