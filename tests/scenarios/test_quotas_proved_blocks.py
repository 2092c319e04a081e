"""Nothing is blocked without a reason, and no block that a budget demands is forgotten: `prove` says so."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from billing.models import Quota, QuotaBlock
from billing.quotas import blocks
from billing.quotas.block_proof import prove_blocks
from billing.quotas.review import review_quotas
from clusters.models import BlockReason
from tests.quota_stories import a_quota, spend
from tests.scenarios.test_quotas_block import BLOCKS, Lab, lab

pytestmark = pytest.mark.django_db(transaction=True)
__all__ = ["lab"]


def broken(lab: Lab) -> list[str]:
    return prove_blocks(moment=lab.now).broken


def test_quota_061_prove_names_a_block_without_a_reason_and_a_demanded_one_that_nobody_tried(
    lab: Lab,
) -> None:
    a_quota(lab.tenant, **BLOCKS)
    spend(lab.cluster, "1000.00")
    lab.is_away = True
    lab.goes_by()
    assert (lab.states, broken(lab)) == (["requested"], [])  # it says why it is not done
    lab.is_away = False
    lab.goes_by(3600)
    assert (lab.states, broken(lab)) == (["blocked"], [])
    BlockReason.objects.update(ended_at=timezone.now())
    assert broken(lab) == [
        "gpu1/vision: blocked without a reason",
        "gpu1/vision: budget monthly of vision counts it as blocked, and no block has it as a reason",
    ]
    BlockReason.objects.update(ended_at=None)
    QuotaBlock.objects.update(state="requested", next_at=lab.now)
    assert broken(lab) == []
    lab.now = lab.now.replace(minute=lab.now.minute + 11)
    assert broken(lab) == [
        "gpu1/vision: To be blocked: budget monthly of vision, due at 2026-03-05 13:01 UTC and not tried"
    ]


def test_quota_061_prove_names_an_account_that_a_used_up_budget_forgot(lab: Lab) -> None:
    quota = a_quota(lab.tenant, **BLOCKS)
    spend(lab.cluster, "999.00")
    lab.goes_by()
    assert (lab.states, broken(lab)) == ([], [])
    spend(lab.cluster, "1.00", day="2026-03-03")
    assert broken(lab) == []  # the next pass has not seen it yet
    lab.goes_by()
    assert (lab.states, broken(lab)) == (["blocked"], [])
    QuotaBlock.objects.update(state="lifting", next_at=lab.now)
    forgotten = ["gpu1/vision: budget monthly of vision is used up, and no block was requested"]
    assert broken(lab) == forgotten
    QuotaBlock.objects.all().delete()
    BlockReason.objects.update(ended_at=None)
    assert broken(lab) == forgotten
    Quota.objects.filter(pk=quota.pk).update(watch=True)
    assert broken(lab) == []
    Quota.objects.filter(pk=quota.pk).update(watch=False, amount=1)
    blocks.release_quotas(
        tenant=lab.tenant, until=lab.now + timedelta(days=1), reason="a deadline", by="op", moment=lab.now
    )
    review_quotas(moment=lab.now)
    assert broken(lab) == []  # an operator lets all go
