"""When the block of a budget goes: with the first cent that is left, and not because nothing is read."""

from __future__ import annotations

from typing import Any

import pytest
from django.core import mail

from billing.models import QuotaEvery
from clusters.models import Cluster, Connection
from tests.quota_stories import a_quota, spend
from tests.scenarios.test_quotas_block import BLOCKS, Lab, lab

__all__ = ["lab"]

pytestmark = pytest.mark.django_db(transaction=True)


def test_quota_064_a_block_goes_with_the_first_cent_that_is_left_and_nobody_is_told(lab: Lab) -> None:
    a_quota(lab.tenant, **BLOCKS)
    job = spend(lab.cluster, "1000.00")
    lab.goes_by()
    assert lab.gpus == 0
    sent = len(mail.outbox)
    spend(lab.cluster, "999.56", job_id=job)
    lab.goes_by()
    assert lab.gpus == 8
    assert len(mail.outbox) == sent


def test_quota_037_a_small_raise_lifts_the_block_too(lab: Lab) -> None:
    a_quota(lab.tenant, **BLOCKS)
    spend(lab.cluster, "1000.00")
    lab.goes_by()
    assert lab.gpus == 0
    lab.raise_to("1000.01")
    lab.goes_by()
    assert lab.gpus == 8


def test_quota_027_a_window_that_empties_unread_lifts_nothing(lab: Lab) -> None:
    Connection.objects.create(cluster=lab.cluster, base_url="https://slurm.example")
    window: dict[str, Any] = {"every": QuotaEvery.ROLLING, "hours": 24, "made": "2026-03-05"}
    a_quota(lab.tenant, **BLOCKS, **window)
    spend(lab.cluster, "1000.00", "2026-03-05")
    Cluster.objects.update(complete_through=lab.now)
    lab.goes_by()
    assert lab.gpus == 0
    lab.goes_by(2 * 86_400)  # and the cluster was not read since
    assert lab.gpus == 0
    Cluster.objects.update(complete_through=lab.now)
    lab.goes_by()
    assert lab.gpus == 8


def test_quota_037_a_raise_frees_though_the_cluster_is_not_read_if_it_was_enough_when_it_was(
    lab: Lab,
) -> None:
    Connection.objects.create(cluster=lab.cluster, base_url="https://slurm.example")
    window: dict[str, Any] = {"every": QuotaEvery.ROLLING, "hours": 24, "made": "2026-03-05"}
    a_quota(lab.tenant, **BLOCKS, **window)
    spend(lab.cluster, "1200.00", "2026-03-05")
    Cluster.objects.update(complete_through=lab.now)
    lab.goes_by()
    lab.goes_by(2 * 86_400)
    lab.raise_to("1100.00")
    lab.goes_by()
    assert lab.gpus == 0  # when it was read last, more than that was used
    lab.raise_to("1200.01")
    lab.goes_by()
    assert lab.gpus == 8
