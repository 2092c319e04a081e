"""Workers and schedulers of many: a cluster is pulled by one of them at a time, and none is forgotten."""

from __future__ import annotations

from threading import Event
from typing import Any

import pytest

from billing import tasks
from billing.rating.pulls import PullOutcome
from clusters import pull_schedule
from clusters.connectors.base import ConnectorError
from clusters.models import ClusterKind, Connection, Pull, UsageRecord
from tests.builders import a_cluster, a_job, at
from tests.integration.test_race_for_the_same_rows import at_once
from tests.schedulers import Scheduler, a_connection

pytestmark = pytest.mark.usefixtures("transactional_db")

PATIENCE = 30  # seconds


def test_of_two_workers_one_pulls_and_the_other_says_so() -> None:
    cluster = a_connection().cluster
    inside, release = Event(), Event()
    slow = Scheduler([a_job(started="2026-03-01 10:00", ended="2026-03-01 11:00")])
    idle = Scheduler()

    def wait_in_the_middle() -> None:
        inside.set()
        assert release.wait(PATIENCE)

    slow.during = wait_in_the_middle

    def one() -> PullOutcome:
        return slow.pulled(cluster, "2026-03-01 12:00").outcome

    def other() -> PullOutcome:
        assert inside.wait(PATIENCE)
        try:
            return idle.pulled(cluster, "2026-03-01 12:00").outcome
        finally:
            release.set()

    assert at_once(one, other) == [PullOutcome.DONE, PullOutcome.BUSY]
    assert idle.windows == []
    assert (Pull.objects.count(), UsageRecord.objects.count()) == (1, 1)
    assert idle.pulled(cluster, "2026-03-01 12:05").outcome is PullOutcome.DONE


def test_two_clusters_are_pulled_at_the_same_time() -> None:
    clusters = [a_connection(a_cluster(name, kind=ClusterKind.SLURM)).cluster for name in ("gpu1", "gpu2")]
    both = [Event(), Event()]

    def pull(number: int) -> PullOutcome:
        def meet() -> None:
            both[number].set()
            assert both[1 - number].wait(PATIENCE)

        return Scheduler(during=meet).pulled(clusters[number], "2026-03-01 12:00").outcome

    assert at_once(lambda: pull(0), lambda: pull(1)) == [PullOutcome.DONE, PullOutcome.DONE]


def test_however_many_schedulers_run_each_due_cluster_is_told_of_once() -> None:
    for number in range(4):
        a_connection(a_cluster(f"gpu{number}", kind=ClusterKind.SLURM))
    Connection.objects.filter(cluster__name="gpu3").update(enabled=False)
    moment = at("2026-03-01 12:00")
    claims = at_once(*[lambda: pull_schedule.claim(moment=moment)] * 3)
    cluster_ids = [cluster_id for claim in claims for cluster_id, _ in claim]
    assert len(cluster_ids) == len(set(cluster_ids)) == 3
    assert pull_schedule.claim(moment=at("2026-03-01 12:04")) == []
    assert (
        len(pull_schedule.claim(moment=at("2026-03-01 12:05"))) == 3
    )  # nobody began them: they are due again


def test_the_schedule_sends_what_is_due_and_backs_off_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[dict[str, Any], int]] = []
    monkeypatch.setattr(
        tasks.pull_usage, "apply_async", lambda *, kwargs, expires: sent.append((kwargs, expires))
    )
    cluster = a_connection(every=120).cluster
    tasks.pull_due()
    tasks.pull_due()
    assert sent == [({"cluster_id": cluster.pk}, 120)]
    Scheduler(fails=ConnectorError("Away.", retry=False)).pulled(cluster, "2026-03-01 12:00")
    assert pull_schedule.claim(moment=at("2026-03-01 12:59")) == []
    assert pull_schedule.ask(cluster)
    assert pull_schedule.claim(moment=at("2026-03-01 12:59")) == [(cluster.pk, 120)]


def test_a_worker_whose_source_is_away_keeps_why_and_goes_on() -> None:
    cluster = a_connection(base_url="http://127.0.0.1:9").cluster
    tasks.pull_usage(cluster_id=cluster.pk)
    connection = Connection.objects.get()
    assert connection.failures == 1
    assert connection.last_error
    assert Pull.objects.get().error == connection.last_error
