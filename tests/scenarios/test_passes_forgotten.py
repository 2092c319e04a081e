"""A cluster is read 288 times a day for years: its page stays quick, and what happened stays known."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from clusters import oversight
from clusters.models import Cluster, Pull
from tests.builders import a_cluster, at

pytestmark = pytest.mark.django_db

NOW = at("2027-06-01 12:00")


def a_pass(cluster: Cluster, source: str, *, days: float, **told: Any) -> None:
    began = NOW - timedelta(days=days)
    told = {"outcome": Pull.Outcome.DONE, "until": began, **told}
    Pull.objects.create(cluster=cluster, source=source, started_at=began, **told)


def test_the_list_counts_the_new_jobs_of_a_day_without_reading_all_passes() -> None:
    lab = a_cluster()
    a_pass(lab, "yesterday", days=1.01, new=100)
    a_pass(lab, "this morning", days=0.3, new=3)
    a_pass(lab, "just now", days=0, new=4)
    (stand,) = oversight.clusters(moment=NOW)
    assert stand.jobs == 7
    assert stand.pull is not None
    assert stand.pull.source == "just now"
