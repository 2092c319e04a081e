"""What a real Prometheus told, as the ledger keeps it: the same records from any cutting and order of windows."""

from __future__ import annotations

import random
from typing import Any

import pytest

from billing.rating import ingest
from clusters.models import Cluster, UsageRecord
from clusters.open_runs import open_keys
from tests import builders
from tests.contracts.prometheus_reading import HOUR, connector, present
from tests.integration.prom_lab import Lab

pytestmark = pytest.mark.django_db

BILLED = (
    *("source_key", "account__name", "queue", "gpus", "gpu_model", "mig_profile", "share_num", "share_den"),
    *("started", "ended", "seen_until", "state", "node_list", "requested"),
)


def _takes_in(cluster: Cluster, url: str, since: int, until: int) -> ingest.IngestResult:
    source = connector(url)
    return builders.ingest(cluster, *source.usage(since=since, until=until, open_keys=open_keys(cluster)))


def _records(cluster: Cluster) -> list[tuple[Any, ...]]:
    records = UsageRecord.objects.filter(cluster=cluster).order_by("source_key")
    return [tuple(row) for row in records.values_list(*BILLED)]


def test_three_days_at_once_or_by_the_hour_at_random_and_again_are_the_same_records(pushed_lab: Lab) -> None:
    lab = pushed_lab
    at_once, in_pieces = builders.a_cluster("at-once"), builders.a_cluster("in-pieces")
    _takes_in(at_once, lab.url, lab.base, lab.end)
    records = _records(at_once)
    assert len(records) == 358

    pieces = [(begin, begin + HOUR) for begin in range(lab.base, lab.end, HOUR)]
    for since, until in random.Random(11).sample(pieces, len(pieces)):
        _takes_in(in_pieces, lab.url, since, until)
    assert _records(in_pieces) == records

    for cluster in (at_once, in_pieces):
        again = _takes_in(cluster, lab.url, lab.base, lab.end).stored
        assert (again.new, again.revised, again.quarantined) == (0, 0, 0)
        assert _records(cluster) == records


def test_a_run_that_ended_while_nobody_looked_is_closed_by_the_next_pass(pushed_lab: Lab) -> None:
    lab = pushed_lab
    cluster = builders.a_cluster()
    pod = next(pod for pod in lab.truth["pods"] if pod["pod"] == "gap-end-kept")
    (down,) = lab.truth["server_down"]
    with present(lab.url, down[0] + 2000) as url:
        _takes_in(cluster, url, down[0] - HOUR, down[0] + 1200)
    record = UsageRecord.objects.get(source_key__startswith=pod["uid"])
    assert record.ended is None
    seen_until = record.seen_until
    assert seen_until is not None
    assert seen_until < pod["ended"]
    _takes_in(cluster, lab.url, lab.end - HOUR, lab.end)
    record.refresh_from_db()
    assert (record.started, record.ended, record.state) == (pod["scheduled"], pod["ended"], "Succeeded")
