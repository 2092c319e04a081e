"""Kill -9 in the pass over quotas and while blocks are enforced: the same state, notices and blocks as without."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from billing.models import Notice, QuotaAction, QuotaBlock, QuotaCrossing, QuotaEvery, QuotaMeasure
from billing.quotas import quotas
from billing.quotas.quotas import Setter
from billing.quotas.terms import QuotaTerms
from clusters.models import AccountBlock, Act, BlockReason, Cluster
from portal.core.events.models import Event
from portal.core.tenants.models import Role, Tenant
from tests import builders
from tests.fakes.scheduler_port import a_world, connected
from tests.fakes.slurmrestd import StandIn
from tests.integration.operators import Operator
from tests.quota_stories import spend

pytestmark = pytest.mark.usefixtures("transactional_db")

PASS = "task", "billing.tasks.review_quotas"
ENFORCES = "task", "billing.tasks.enforce_blocks"
KILLS = 4
SEEDS = (1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 25)))


class Lab:
    """Vision may spend 1,000.00 in these weeks, and is killed at: its passes, and whoever carries them out."""

    def __init__(self, slurm: StandIn, op: Operator, dice: random.Random) -> None:
        self.slurm, self.op, self.dice = slurm, op, dice
        self.now = datetime.now(UTC).replace(microsecond=0)
        slurm.now = int(time.time())
        self.cluster = connected(slurm)
        Cluster.objects.update(complete_through=self.now)
        self.vision: Tenant = builders.a_tenant(
            "vision", plan=builders.a_plan(), accounts=[(self.cluster, "vision")]
        )
        builders.a_person("ann@vision.example", self.vision, Role.OWNER)
        self.allow(1000)

    def allow(self, dollars: int) -> None:
        terms = QuotaTerms(
            measure=QuotaMeasure.MONEY,
            amount=Decimal(dollars),
            every=QuotaEvery.TERM,
            first_day=(self.now - timedelta(days=20)).date(),
            end_day=(self.now + timedelta(days=20)).date(),
            action=QuotaAction.NO_GPU_JOBS,
        )
        quotas.set_quota(
            tenant=self.vision, name="weeks", terms=terms, by=Setter.OPERATOR, moment=datetime.now(UTC)
        )

    def spends(self, dollars: str) -> None:
        spend(self.cluster, dollars, day=f"{self.now - timedelta(days=3):%Y-%m-%d}", job_id="1")

    def passes_with_kills(self) -> int:
        """Passes and their enforcement, each killed at moments of chance, and one of both to the end."""
        killed = 0
        for _ in range(KILLS):
            killed += self._is_killed(*PASS)
        self.op.does(*PASS)
        for method in (*["", "GET", "POST"], self.dice.choice(["GET", "POST"])):
            killed += self._is_killed(*ENFORCES) if not method else self._is_killed_asking(method)
        self.op.does(*ENFORCES)
        return killed

    def _is_killed(self, *command: str) -> bool:
        return self.op.is_killed_doing(*command, count=lambda: 0, at=0, after=self.dice.uniform(0, 0.3))

    def _is_killed_asking(self, method: str) -> bool:
        """When Slurm has its request: before it takes effect, or before it is answered."""
        victim: list[int] = []

        def strike(request: str) -> None:
            if request.startswith(method):
                while not victim:
                    time.sleep(0.001)
                os.kill(victim[0], signal.SIGKILL)
                time.sleep(0.1)  # it is dead before it could be answered

        name = self.dice.choice(["before", "after"])
        setattr(self.slurm, name, strike)
        victim.append(self.op.begins(*ENFORCES))
        code = self.op.ends()
        assert code in (0, -signal.SIGKILL)
        self.slurm.before = self.slurm.after = lambda request: None
        return code == -signal.SIGKILL

    @property
    def gpus(self) -> int | None:
        return self.slurm.world.limits("vision").tres.get("total", {}).get("gres/gpu")


@pytest.fixture
def lab(database_url: str, request: pytest.FixtureRequest) -> Iterator[Lab]:
    seed = request.node.callspec.params["seed"]
    with StandIn(44, world=a_world()) as slurm, Operator(database_url) as op:
        yield Lab(slurm, op, random.Random(seed))


@pytest.mark.parametrize("seed", SEEDS)
def test_quota_060_killed_at_any_moment_it_blocks_tells_and_lifts_once(seed: int, lab: Lab) -> None:
    lab.op.does(*PASS)
    lab.spends("1000.00")
    killed = lab.passes_with_kills()
    assert (lab.gpus, states()) == (0, ["blocked"])
    assert told() == ["used 100%", "used 50%", "used 80%"]
    assert Notice.objects.count() == 1
    assert blocked_and_lifted() == ["quota.blocked"]

    lab.allow(1500)
    killed += lab.passes_with_kills()
    assert (lab.gpus, states()) == (8, ["lifted"])  # of that one undisturbed pass
    assert blocked_and_lifted() == ["quota.blocked", "quota.lifted"]
    assert not AccountBlock.objects.filter(ended_at=None).exists()
    assert not BlockReason.objects.filter(ended_at=None).exists()
    assert not Act.objects.filter(outcome="intended").exists()
    notices = Notice.objects.count()

    lab.spends("1600.00")
    killed += lab.passes_with_kills()
    assert (lab.gpus, states()) == (0, ["lifted", "blocked"])
    assert Notice.objects.count() == notices + 1
    assert blocked_and_lifted() == ["quota.blocked", "quota.lifted", "quota.blocked"]
    standing = QuotaCrossing.objects.filter(cleared_at=None).values_list("threshold", flat=True)
    assert sorted(standing) == ["100%", "50%", "80%"]
    assert killed >= 6  # of 24 times


def states() -> list[str]:
    return list(QuotaBlock.objects.order_by("pk").values_list("state", flat=True))


def told() -> list[str]:
    rows = Event.objects.filter(type="quota.threshold")
    return sorted(rows.values_list("state", flat=True))


def blocked_and_lifted() -> list[str]:
    rows = Event.objects.filter(type__in=["quota.blocked", "quota.lifted"]).order_by("pk")
    return list(rows.values_list("type", flat=True))
