"""A budget that ends running jobs has Kueue drain the account's queues: only then, all or nothing, and undone."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from billing.models import QuotaAction, QuotaEnding
from billing.quotas import ending_run, quotas
from billing.quotas.job_ends import EndTally
from billing.quotas.quotas import Setter
from billing.rating.pulls import Pulled, PullOutcome
from clusters import enforcement_plan, job_control
from clusters.ending_leave import set_ending_leave
from clusters.enforcement_plan import Request
from clusters.models import ActKind, BlockReason, Cluster
from portal.core.events.models import Event
from tests.builders import a_job, at, ingest, own
from tests.fakes.kubernetes import StandIn
from tests.fakes.kubernetes_port import a_port, a_world
from tests.quota_stories import a_quota, spend
from tests.scenarios.test_kubernetes_blocks import Lab
from tests.scenarios.test_quotas_block import blocks_terms

pytestmark = pytest.mark.django_db(transaction=True)

ENDS = {"action": QuotaAction.END_JOBS, "grace_minutes": 120}


class DrainLab(Lab):
    """Of 1,000.00 vision has used 984.00, and four GPUs run on in its queue day: at 12:00 all is used."""

    def __init__(
        self,
        kube: StandIn,
        *,
        cluster_queues: tuple[str, ...] = (),
        accounts: tuple[str, ...] = (),  # besides vision
        **quota: Any,
    ) -> None:
        super().__init__(kube, dedicated_cluster_queues=list(cluster_queues))
        for account in accounts:
            own(self.tenant, self.cluster, account)
        set_ending_leave(cluster=self.cluster, allowed=True)
        self.cluster.refresh_from_db()
        self.pods: dict[str, str] = {}
        self.row = a_quota(self.tenant, **{**ENDS, **quota})
        spend(self.cluster, "984.00")
        self.runs("pod-a", ("vision", "day"), "2026-03-05 10:00")
        if accounts:
            self.runs("pod-s", ("speech", "main"), "2026-03-05 10:00")
        kube.workloads["pod-s"] = ("speech", "main")
        self.goes_by(0)

    def runs(self, pod: str, queue: tuple[str, str] | None, since: str) -> None:
        """Without a queue Kueue does not know of it."""
        self.pods[pod] = since
        self.kube.workloads[pod] = queue or ("", "")
        self.reads(self.cluster, moment=self.now)

    def reads(self, cluster: Cluster, *, moment: datetime) -> Pulled:
        """What Prometheus has: a pod that is gone ended with the last scrape."""
        self.kube.run_controllers()
        end = int((moment - timedelta(minutes=9)).timestamp())
        for pod, since in self.pods.items():
            facts: dict[str, Any] = {"ended": None, "seen_until": int(moment.timestamp()), "state": "Running"}
            if pod not in self.kube.workloads:
                facts = {"ended": end, "state": "Failed"}
            facts["account"] = "speech" if pod == "pod-s" else "vision"
            ingest(cluster, a_job(job_id=pod, source_key=f"{pod}/main/gpu", started=since, gpus=4, **facts))
        return Pulled(PullOutcome.DONE)

    def ends(self, moment: str) -> EndTally:
        self.now = at(moment)
        return ending_run.end_jobs(moment=self.now, opens=a_port, reads=self.reads)

    def is_due(self) -> EndTally:
        self.ends("2026-03-05 13:46")
        return self.ends("2026-03-05 14:00")

    def is_raised(self) -> None:
        terms = blocks_terms(self.row, amount=Decimal(1500))
        quotas.set_quota(
            tenant=self.tenant, name=self.row.name, terms=terms, by=Setter.OPERATOR, moment=self.now
        )

    @property
    def policies(self) -> tuple[str, str]:
        return self.kube.policy("vision", "day"), self.kube.policy("vision", "night")


@pytest.fixture(params=["v1beta1", "v1beta2"])
def kube(request: pytest.FixtureRequest) -> Iterator[StandIn]:
    with StandIn(kueue=(request.param,)) as kube:
        a_world(kube)
        yield kube


@pytest.fixture
def newest() -> Iterator[StandIn]:
    with StandIn() as kube:
        a_world(kube)
        yield kube


def test_quota_052_queues_are_drained_only_once_the_grace_is_over_and_opened_again(kube: StandIn) -> None:
    lab = DrainLab(kube)
    assert (lab.policies, QuotaEnding.objects.get().state) == (("Hold", "Hold"), "announced")
    assert lab.ends("2026-03-05 13:46").warned == 1
    assert lab.policies == ("Hold", "Hold")
    assert lab.ends("2026-03-05 14:00").troubles == []
    assert lab.policies == ("HoldAndDrain", "HoldAndDrain")
    assert kube.workloads == {"pod-s": ("speech", "main")}
    assert lab.ends("2026-03-05 14:12").ended == 1
    assert QuotaEnding.objects.get().jobs == ["pod-a"]
    assert Event.objects.filter(type="quota.ended").count() == 1
    writes = len(kube.writes())
    assert (lab.ends("2026-03-05 14:24").ended, len(kube.writes())) == (0, writes)
    lab.is_raised()
    lab.goes_by()
    assert lab.policies == ("None", "None")
    owners = kube.objects["localqueues", "vision", "day"].owners
    assert [manager for manager, _ in owners] == ["argocd"]
    assert not BlockReason.objects.filter(ended_at=None).exists()
    assert all("force" not in call for call in kube.calls)


def test_quota_052_a_cluster_queue_of_the_tenants_alone_is_drained_as_a_whole(newest: StandIn) -> None:
    lab = DrainLab(newest, cluster_queues=("research",))
    lab.is_due()
    assert (newest.policy("", "research"), lab.policies) == ("HoldAndDrain", ("None", "HoldAndDrain"))
    assert newest.workloads == {"pod-s": ("speech", "main")}


def test_quota_036_a_drain_goes_with_its_budget_and_the_hold_with_the_last_reason(newest: StandIn) -> None:
    lab = DrainLab(newest)
    lab.is_due()
    with a_port(lab.cluster) as port:
        plan = enforcement_plan.plan_block(port=port, account="vision", source="dunning")
        assert "Nothing is sent to Kubernetes." in plan.steps[0].words
        assert job_control.carry_out(port=port, plan=plan, who="dunning").good
    lab.is_raised()
    lab.goes_by()
    assert lab.policies == ("Hold", "Hold")  # what dunning demands, and no more
    with a_port(lab.cluster) as port:
        plan = enforcement_plan.plan_unblock(port=port, account="vision", source="dunning")
        assert job_control.carry_out(port=port, plan=plan, who="dunning").good
    assert lab.policies == ("None", "None")


def test_quota_031_leave_that_is_taken_back_ends_the_drain_and_not_the_block(newest: StandIn) -> None:
    lab = DrainLab(newest)
    lab.is_due()
    set_ending_leave(cluster=lab.cluster, allowed=False)
    lab.ends("2026-03-05 14:01")
    newest.forbidden = {"patch localqueues"}
    (trouble,) = lab.goes_by().troubles
    assert "The token has no right to LocalQueue vision/day" in trouble
    assert lab.goes_by(20).troubles == []  # not due yet
    newest.forbidden = set()
    lab.goes_by()
    assert lab.policies == ("Hold", "Hold")
    assert list(BlockReason.objects.filter(ended_at=None).values_list("source", flat=True)) == [
        f"quota:{lab.row.pk}"
    ]


def test_quota_036_a_queue_that_cannot_be_opened_keeps_no_other_account_drained(newest: StandIn) -> None:
    lab = DrainLab(newest, accounts=("speech",))
    lab.is_due()
    assert {*lab.policies, newest.policy("speech", "main")} == {"HoldAndDrain"}
    newest.webhook = lambda call: "frozen" if "/vision/" in call.path else ""
    lab.is_raised()
    troubles = lab.goes_by().troubles
    assert {trouble.partition(":")[0] for trouble in troubles} == {"kube/vision"}
    assert (newest.policy("speech", "main"), *lab.policies) == ("None", "HoldAndDrain", "HoldAndDrain")
    newest.webhook = lambda _: ""
    lab.goes_by(600)
    assert lab.policies == ("None", "None")


def test_quota_036_a_drain_whose_end_nobody_saw_is_looked_at_again(newest: StandIn) -> None:
    lab = DrainLab(newest)
    lab.is_due()
    set_ending_leave(cluster=lab.cluster, allowed=False)
    lab.ends("2026-03-05 14:01")
    newest.breaks = lambda call: call.method == "PATCH" and "dryRun" not in call.query
    assert lab.goes_by().troubles
    newest.breaks = lambda _: False
    assert lab.policies == ("HoldAndDrain", "HoldAndDrain")
    lab.goes_by(600)
    assert lab.policies == ("Hold", "Hold")
    assert BlockReason.objects.filter(ended_at=None, source__startswith="quota-ending:").count() == 0


def test_quota_036_a_drain_of_somebody_elses_stays_theirs_alone(newest: StandIn) -> None:
    lab = Lab(newest)
    for queue in ("day", "night"):
        newest.edit("localqueues", "vision", queue, {"stopPolicy": "HoldAndDrain"})
    newest.run_controllers()
    request = Request(kind=ActKind.BLOCK, account="vision", source="quota-ending:1", drains=True)
    with a_port(lab.cluster) as port:
        plan = enforcement_plan.plan(port=port, request=request)
        assert job_control.carry_out(port=port, plan=plan, who="quota:1").good
    assert newest.writes() == []  # what is written with the value that stands would be ours, too


def test_quota_034_nothing_is_drained_where_a_pod_runs_that_is_not_to_be_ended(newest: StandIn) -> None:
    lab = DrainLab(newest)
    lab.runs("pod-b", ("vision", "night"), "2026-03-05 13:00")  # it was not warned
    (trouble,) = lab.is_due().troubles
    assert "vision runs 1 more that are not to be ended, and Kueue ends all that runs in a queue" in trouble
    assert lab.policies == ("Hold", "Hold")
    assert len(newest.workloads) == 3


def test_quota_064_a_pod_that_kueue_does_not_know_is_told_of(newest: StandIn) -> None:
    lab = DrainLab(newest)
    lab.runs("pod-b", None, "2026-03-05 11:00")
    assert lab.is_due().troubles == []
    assert lab.policies == ("HoldAndDrain", "HoldAndDrain")
    lab.ends("2026-03-05 14:12")
    (trouble,) = lab.ends("2026-03-05 14:31").troubles
    assert "vision still runs 1 that do not go through Kueue, or do not end" in trouble


@pytest.mark.parametrize("reason", ["owned", "without a queue", "broken"])
def test_quota_055_what_cannot_be_drained_is_a_sentence_and_ends_nothing(
    newest: StandIn, reason: str
) -> None:
    lab = DrainLab(newest)
    words = ""
    if reason == "owned":
        owners = newest.objects["localqueues", "vision", "night"].owners
        owners["argocd", "Apply"] |= {("spec", "stopPolicy")}
        words = "Somebody else manages .spec.stopPolicy"
    elif reason == "without a queue":
        newest.take("localqueues", "vision", "day")
        newest.take("localqueues", "vision", "night")
        words = "In vision are pods without a queue of Kueue, which alone can end what runs"
    else:
        newest.breaks = lambda call: call.method == "PATCH" and "dryRun" not in call.query
        words = "broke its answer off"
    (trouble,) = lab.is_due().troubles
    assert words in trouble
    assert {"pod-a", "pod-s"} == set(newest.workloads)
