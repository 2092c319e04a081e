"""A scheduler that is away while many accounts must be blocked: it is tried ever more rarely, and told what holds."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from billing.models import QuotaBlock
from clusters.enforcement_plan import SchedulerPort
from clusters.models import Act, Cluster
from tests.builders import own
from tests.fakes.scheduler_port import a_world
from tests.fakes.slurm_world import Association
from tests.fakes.slurmrestd import StandIn
from tests.quota_stories import a_quota, spend
from tests.scenarios.test_quotas_block import BLOCKS, Lab
from tests.tiers import strides

pytestmark = pytest.mark.django_db(transaction=True)
NAMES = [f"lab{number:02}" for number in range(20)]


class ManyLab(Lab):
    """Vision owns 20 accounts more, each of which may hold 4 GPUs at once."""

    def __init__(self, slurm: StandIn) -> None:
        super().__init__(slurm)
        self.tenant.ownerships.all().delete()
        self.opened = 0
        for number, name in enumerate(NAMES):
            tres = {"total": {"gres/gpu": 4}}
            slurm.world.associations.append(Association(100 + number, name, parent="acme", tres=tres))
            own(self.tenant, self.cluster, name)

    def opens(self, cluster: Cluster) -> SchedulerPort:
        self.opened += 1
        return super().opens(cluster)

    def blocked(self) -> int:
        limits = [self.slurm.world.limits(name).tres.get("total", {}) for name in NAMES]
        return sum(one.get("gres/gpu") == 0 for one in limits)


@pytest.fixture
def lab(settings: Any) -> Iterator[ManyLab]:
    settings.CLUSTERTAB_SENDS_MAIL = True
    with StandIn(44, world=a_world()) as slurm:
        yield ManyLab(slurm)


def three_hours_go_by(lab: ManyLab) -> None:
    for stride in strides(3 * 60):
        lab.goes_by(60 * stride)


@pytest.mark.swept
def test_quota_039_twenty_accounts_are_tried_at_growing_distances_and_then_each_is_blocked_once(
    lab: ManyLab,
) -> None:
    a_quota(lab.tenant, **BLOCKS)
    spend(lab.cluster, "1000.00", account=NAMES[0])
    lab.is_away = True
    three_hours_go_by(lab)
    assert QuotaBlock.objects.filter(state="requested").exclude(error="").count() == 20
    assert lab.opened <= 8  # after 5, 10, 20 … minutes, and not 180 times
    lab.is_away = False
    lab.goes_by(int(timedelta(hours=6).total_seconds()))
    assert (lab.blocked(), Act.objects.count()) == (20, 20)
    lab.goes_by()
    assert Act.objects.count() == 20


@pytest.mark.swept
def test_quota_039_what_was_blocked_and_raised_meanwhile_is_never_sent(lab: ManyLab) -> None:
    a_quota(lab.tenant, **BLOCKS)
    a_quota(lab.tenant, "one", account=NAMES[0], **BLOCKS)
    spend(lab.cluster, "1000.00", account=NAMES[0])
    lab.is_away = True
    three_hours_go_by(lab)
    lab.raise_to("1500")
    lab.is_away = False
    lab.goes_by(int(timedelta(hours=6).total_seconds()))
    assert (lab.blocked(), Act.objects.count()) == (1, 1)  # the one budget of this account is used still
