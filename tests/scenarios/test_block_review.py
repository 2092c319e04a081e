"""Blocked accounts are read back: what somebody has changed by hand is told, and left as it is."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from clusters import block_review, enforcement_plan, job_control
from clusters.connectors.acts import ActRefusedError
from clusters.connectors.slurm.acts import SlurmActs
from clusters.models import AccountBlock, Act, Cluster
from tests import builders
from tests.fakes.scheduler_port import a_world
from tests.fakes.slurmrestd import StandIn
from tests.quota_stories import a_quota, spend
from tests.scenarios.test_quotas_block import BLOCKS, Lab
from tests.web.house import page
from tests.web.test_overview import words

pytestmark = pytest.mark.django_db(transaction=True)
SENTENCE = "gpu1/vision: GrpTRES=gres/gpu is 2 and not our 0 any more: it is left as it is."


@pytest.fixture
def lab(settings: Any) -> Iterator[Lab]:
    with StandIn(44, world=a_world()) as slurm:
        lab = Lab(slurm)
        a_quota(lab.tenant, **BLOCKS)
        spend(lab.cluster, "1000.00")
        lab.goes_by()
        assert lab.gpus == 0
        yield lab


def review(lab: Lab) -> list[str]:
    return block_review.review_blocks(moment=lab.now, opens=lab.opens)


def test_quota_038_what_somebody_changed_while_the_block_stands_is_told_once_and_not_written_again(
    lab: Lab,
) -> None:
    assert review(lab) == []
    lab.slurm.world.limits("vision").tres["total"]["gres/gpu"] = 2
    lab.goes_by()
    assert review(lab) == []  # it was looked at a minute ago
    lab.goes_by(300)
    assert review(lab) == [SENTENCE]
    lab.goes_by(300)
    assert review(lab) == []
    assert (lab.gpus, Act.objects.count(), lab.states) == (2, 1, ["blocked"])
    op = builders.an_operator()
    assert SENTENCE in words(page(op, "/operator/budgets/"))
    assert "Changed by hand GrpTRES=gres/gpu is 2" in words(page(op, "/operator/clusters/gpu1/blocks/"))
    assert block_review.count_changed() == {"gpu1": 1}


def test_what_is_set_back_is_told_no_more_and_a_block_that_goes_takes_it_along(lab: Lab) -> None:
    limits = lab.slurm.world.limits("vision").tres["total"]
    del limits["gres/gpu"]
    assert review(lab) == [SENTENCE.replace("is 2", "is none")]
    limits["gres/gpu"] = 0
    lab.goes_by(300)
    assert (review(lab), block_review.count_changed()) == ([], {})
    limits["gres/gpu"] = 4
    lab.goes_by(300)
    review(lab)
    lab.raise_to("1500")
    lab.goes_by()
    assert (lab.gpus, block_review.count_changed()) == (4, {})


def test_a_scheduler_that_is_away_is_read_back_later_and_keeps_no_other_waiting(lab: Lab) -> None:
    other = Cluster.objects.create(name="other", timezone="UTC")
    act = Act.objects.get()
    AccountBlock.objects.create(cluster=other, account="a", limits={"x": [None, 0]}, blocked_by=act)

    def opens(cluster: Cluster) -> Any:
        lab.is_away = cluster == other
        return lab.opens(cluster)

    lab.slurm.world.limits("vision").tres["total"]["gres/gpu"] = 2
    assert block_review.review_blocks(moment=lab.now, opens=opens) == [SENTENCE]
    assert not AccountBlock.objects.filter(read_back_at=None).exists()
    assert AccountBlock.objects.get(cluster=other).changed == {}


def test_what_a_scheduler_refuses_of_one_account_keeps_no_other_from_its_turn(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    act, limits = Act.objects.get(), SlurmActs.limits
    odd = AccountBlock.objects.create(
        cluster=lab.cluster, account="odd", limits={"x": [None, 0]}, blocked_by=act
    )
    AccountBlock.objects.exclude(pk=odd.pk).update(
        read_back_at=lab.now - timedelta(hours=1)
    )  # odd is the first

    def refuses(acts: SlurmActs, account: str, user: str = "") -> dict[str, int]:
        if account == "odd":
            raise ActRefusedError("slurm-user-partitions", retry=False, account=account)
        return limits(acts, account, user)

    monkeypatch.setattr(SlurmActs, "limits", refuses)
    lab.slurm.world.limits("vision").tres["total"]["gres/gpu"] = 2
    assert review(lab) == [SENTENCE]


def test_an_error_that_nobody_foresaw_keeps_no_other_cluster_from_its_turn(lab: Lab) -> None:
    other = Cluster.objects.create(name="other", timezone="UTC")
    act = Act.objects.get()
    AccountBlock.objects.create(cluster=other, account="a", limits={"x": [None, 0]}, blocked_by=act)

    def opens(cluster: Cluster) -> Any:
        if cluster == other:
            raise ZeroDivisionError
        return lab.opens(cluster)

    lab.slurm.world.limits("vision").tres["total"]["gres/gpu"] = 2
    assert block_review.review_blocks(moment=lab.now, opens=opens) == [SENTENCE]


def test_what_another_reason_has_blocked_again_is_told_no_more(lab: Lab) -> None:
    lab.slurm.world.limits("vision").tres["total"]["gres/gpu"] = 2
    assert review(lab) == [SENTENCE]
    with lab.opens(lab.cluster) as port:
        plan = enforcement_plan.plan_block(port=port, account="vision")
        assert job_control.carry_out(port=port, plan=plan, who="op").good
    assert (lab.gpus, block_review.count_changed()) == (0, {})
