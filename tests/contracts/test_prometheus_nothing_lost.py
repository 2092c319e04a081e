"""A pull that meets a failure in its midst says which, keeps nothing of it, and the next one has all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from billing.rating import pulls
from clusters.connectors.http import Endpoint, Http
from clusters.connectors.prometheus import client
from clusters.models import Cluster, ClusterKind, Connection, Quarantined, UsageRecord, UtilisationHour
from tests import builders
from tests.contracts.prometheus_reading import HOUR, through
from tests.fakes.prometheus import Reply, Request, StandIn, error, success
from tests.integration.prom_lab import Lab

pytestmark = pytest.mark.django_db

FAILURES = {
    "401": (Reply(401, b"Unauthorized\n", "text/plain"), "does not know us (HTTP 401): check the user and password"),
    "422": (error(422, "execution", "found duplicate series for the match group"),
            "could not work a query out (HTTP 422): found duplicate series for the match group."),
    "503": (error(503, "unavailable", "no store matched"), "cannot answer now (HTTP 503): no store matched."),
    "time-out": (error(503, "timeout", "query timed out in expression evaluation"),
                 "gave up on a query after its own time limit (--query.timeout): query timed out in"),
    "warning": (success(warnings=["some chunks could not be read"]),
                "answered with a warning, so its answer may be incomplete and nothing of it is kept: some chunks"),
    "11,000 points": (error(400, "bad_data", "exceeded maximum resolution of 11,000 points per timeseries."),
                      "gives at most 11,000 points of a series in one answer: ask for a shorter time."),
    "cut off": (Reply(200, b'{"status":"success","data":{"resultType":"vector","result":[{"met'),
                "sent JSON that is cut off, or is not what the query API documents; nothing of it is kept."),
    "broken off": (Reply(200, b'{"status":"success","data":{"resultType":"vector"', breaks_off=True),
                   "broke its answer off: it, or a proxy before it, was stopped or crashed."),
}  # fmt: skip


class Flaky:
    """What the real server answers; `failure`, where there is one, from the sixth question on."""

    def __init__(self, real: Http) -> None:
        self.real = real
        self.failure: Reply | None = None
        self.requests = 0
        self.every = 0  # of so many questions one fails, and is answered when it comes again

    def __call__(self, request: Request) -> Reply:
        self.requests += 1
        fails = not self.requests % self.every if self.every else self.requests > 5
        return self.failure if self.failure and fails else through(self.real, request)


@contextmanager
def connected(lab: Lab, name: str) -> Iterator[tuple[Cluster, Flaky]]:
    """A cluster that is pulled from the beginning of day 1 on, on which kube-state-metrics is down for a while."""
    cluster = builders.a_cluster(name, kind=ClusterKind.PROMETHEUS)
    begin = datetime.fromtimestamp(lab.base + 28 * HOUR, UTC)
    with (
        Http(Endpoint(base_url=lab.url)) as real,
        StandIn(flaky := Flaky(real), now=lab.base + 33 * HOUR) as server,
    ):
        Connection.objects.create(cluster=cluster, base_url=server.url, first_usage_from=begin)
        yield cluster, flaky


def pull(lab: Lab, cluster: Cluster, *, later: timedelta = timedelta()) -> pulls.Pulled:
    return pulls.pull(cluster, moment=datetime.fromtimestamp(lab.base + 33 * HOUR, UTC) + later)


def stored_rows(cluster: Cluster) -> tuple[list[Any], list[Any]]:
    records = UsageRecord.objects.filter(cluster=cluster).order_by("source_key")
    hours = UtilisationHour.objects.filter(record__cluster=cluster).order_by("record__source_key", "hour")
    return (
        list(
            records.values_list(
                "source_key", "gpus", "share_num", "share_den", "started", "ended", "seen_until", "state"
            )
        ),
        list(hours.values_list("record__source_key", "hour", "busy", "covered", "source", "metric")),
    )


@pytest.mark.parametrize("name", FAILURES)
def test_a_pull_that_fails_in_its_midst_says_why_and_the_next_one_has_all(pushed_lab: Lab, name: str) -> None:
    response, sentence = FAILURES[name]
    with connected(pushed_lab, "kube") as (cluster, flaky):
        flaky.failure = response
        failed = pull(pushed_lab, cluster)
        assert failed.outcome is pulls.PullOutcome.FAILED
        assert sentence in failed.error
        assert "\n" not in failed.error
        assert failed.complete_through is None
        assert stored_rows(cluster) == ([], [])
        assert Connection.objects.get(cluster=cluster).last_error == failed.error

        flaky.failure = None
        healed = pull(pushed_lab, cluster)
        assert (healed.outcome, healed.error) == (pulls.PullOutcome.DONE, "")
    with connected(pushed_lab, "undisturbed") as (undisturbed, _):
        whole = pull(pushed_lab, undisturbed)
    assert healed.complete_through == whole.complete_through
    assert stored_rows(cluster) == stored_rows(undisturbed)
    assert len(stored_rows(cluster)[0]) > 10
    assert not Quarantined.objects.exists()
    assert Connection.objects.get(cluster=cluster).failures == 0


@pytest.mark.parametrize("name", ["503", "warning", "cut off", "broken off"])
def test_a_question_that_fails_for_the_moment_is_asked_again_within_the_pull(
    pushed_lab: Lab, name: str
) -> None:
    response, sentence = FAILURES[name]
    with connected(pushed_lab, "kube") as (cluster, flaky):
        flaky.failure, flaky.every = response, 7
        pulled = pull(pushed_lab, cluster)
    assert (pulled.outcome, pulled.error) == (pulls.PullOutcome.DONE, "")
    assert flaky.requests > 14
    (note,) = [note for note in pulled.notes if note.endswith("Asked again, it answered.")]
    assert sentence in note
    with connected(pushed_lab, "undisturbed") as (undisturbed, _):
        pull(pushed_lab, undisturbed)
    assert stored_rows(cluster) == stored_rows(undisturbed)


def test_a_server_that_fails_again_and_again_is_left_alone_until_the_next_pull(
    pushed_lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "MOST_AGAIN", 3)
    with connected(pushed_lab, "kube") as (cluster, flaky):
        flaky.failure, flaky.every = FAILURES["503"][0], 2
        pulled = pull(pushed_lab, cluster)
    assert pulled.outcome is pulls.PullOutcome.FAILED
    assert stored_rows(cluster) == ([], [])


def test_a_question_is_asked_four_times_at_most(pushed_lab: Lab) -> None:
    with connected(pushed_lab, "kube") as (cluster, flaky):
        flaky.failure = FAILURES["503"][0]
        pull(pushed_lab, cluster)
        assert flaky.requests <= 5 + 3 * 4  # of the questions that are asked at once, each
