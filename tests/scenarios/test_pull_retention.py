"""A cluster is read 288 times a day for years: its page stays quick, and what happened stays known."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from billing.tasks import forget_passes
from clusters import status
from clusters.models import Cluster, Pull
from tests.builders import a_cluster, at

pytestmark = pytest.mark.django_db

NOW = at("2027-06-01 12:00")


def a_pass(cluster: Cluster, source: str, *, days: float, **fields: Any) -> None:
    began = NOW - timedelta(days=days)
    fields = {"outcome": Pull.Outcome.DONE, "until": began, **fields}
    Pull.objects.create(cluster=cluster, source=source, started_at=began, **fields)


def stored_pulls() -> set[str]:
    return set(Pull.objects.values_list("source", flat=True))


def test_what_read_nothing_new_is_forgotten_after_a_month_and_failures_after_a_year() -> None:
    lab = a_cluster()
    failed = Pull.Outcome.FAILED
    a_pass(lab, "now", days=0)
    a_pass(lab, "nothing lately", days=29)
    a_pass(lab, "nothing long ago", days=31)
    a_pass(lab, "new", days=400, new=1)
    a_pass(lab, "revised", days=400, revised=1)
    a_pass(lab, "set aside", days=400, quarantined=1)
    a_pass(lab, "failed", days=364, outcome=failed)
    a_pass(lab, "failed long ago", days=366, outcome=failed)
    a_pass(lab, "march.sacct", days=400, until=None)
    a_pass(a_cluster("paused"), "its last one", days=400)

    forget_passes()
    forget_passes()
    old_sources = {"nothing long ago", "failed long ago"}
    assert old_sources.isdisjoint(stored_pulls())
    assert len(stored_pulls()) == 8


def test_the_list_counts_the_new_jobs_of_a_day_without_reading_all_passes() -> None:
    lab = a_cluster()
    a_pass(lab, "yesterday", days=1.01, new=100)
    a_pass(lab, "this morning", days=0.3, new=3)
    a_pass(lab, "just now", days=0, new=4)
    (stand,) = status.clusters(moment=NOW)
    assert stand.jobs == 7
    assert stand.pull is not None
    assert stand.pull.source == "just now"
