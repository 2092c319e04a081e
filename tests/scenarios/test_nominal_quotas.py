"""GPUs held at once on Kubernetes, as nominalQuota of a ClusterQueue that is a tenant's alone: its list is handed over
to our field manager, or else a ResourceQuota of ours holds the limit, and both are given back exactly."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from billing.limits import enforcement, limits
from billing.limits.limits import LimitTerms
from billing.models import LimitedAccount
from tests.builders import a_tenant, at
from tests.fakes.kubernetes import StandIn as Kube
from tests.fakes.kubernetes_port import a_port, a_world, connected
from tests.scenarios.configuring import run
from tests.scenarios.test_limits_at_once import hard

pytestmark = pytest.mark.django_db(transaction=True)


def groups(**flavors: dict[str, str]) -> list[dict[str, Any]]:
    """Quotas of GPUs by flavor, as a ClusterQueue has them."""
    rows = [
        {
            "name": name,
            "resources": [{"name": "cpu", "nominalQuota": "96"}, {"name": "nvidia.com/gpu", **gpus}],
        }
        for name, gpus in flavors.items()
    ]
    return [{"coveredResources": ["cpu", "nvidia.com/gpu"], "flavors": rows}]


class QueueLab:
    """The ClusterQueue h100s is batch's alone; `by` manages its quotas of 8 GPUs."""

    def __init__(self, kube: Kube, *, by: str, **flavors: dict[str, str]) -> None:
        self.kube = kube
        a_world(kube)
        flavors = flavors or {"h100": {"nominalQuota": "8"}}
        self.groups = groups(**flavors)
        cohort = {"cohort" if kube.kueue == ("v1beta1",) else "cohortName": "eu"}
        kube.cluster_queue("h100s", by=by, resourceGroups=self.groups, **cohort)
        kube.local_queue("batch", "main", "h100s")
        self.cluster = connected(kube, dedicated_cluster_queues=["h100s"])
        self.tenant = a_tenant("vision", accounts=[(self.cluster, "batch")])
        self.now = at("2026-03-05 12:00")

    def limited(self, **terms: Any) -> LimitedAccount:
        if terms:
            limits.set_limit(tenant=self.tenant, name="at-once", terms=LimitTerms(**terms), moment=self.now)
        else:
            limits.end_limit(tenant=self.tenant, name="at-once", moment=self.now)
        self.now += timedelta(hours=7)  # also what failed is tried again
        enforcement.enforce_limits(moment=self.now, opens=a_port)
        return LimitedAccount.objects.latest("pk")

    @property
    def quotas(self) -> list[str]:
        flavors = self.kube.spec("clusterqueues", "", "h100s")["resourceGroups"][0]["flavors"]
        return [flavor["resources"][1]["nominalQuota"] for flavor in flavors]


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_quota_054_the_nominal_quota_of_a_cluster_queue_that_is_the_tenants_alone(version: str) -> None:
    with Kube(kueue=(version,)) as kube:
        lab = QueueLab(kube, by="clustertab-limits", h100={"nominalQuota": "8"}, a100={"nominalQuota": "4"})
        row = lab.limited(gpus=16, gpu_model="h100", jobs=40)
        assert (row.state, row.error, lab.quotas) == ("set", "", ["16", "4"])
        assert hard(kube) == {"pods": "40"}
        assert "may borrow as much as others leave in the cohort eu" in row.note
        run("block_account", "kube", "batch", "--yes")  # the quota is another manager's than the stop
        assert (kube.policy("", "h100s"), lab.quotas) == ("Hold", ["16", "4"])
        assert lab.limited(gpus=12, gpu_model="h100").state == "set"
        run("unblock_account", "kube", "batch", "--yes")
        assert (kube.policy("", "h100s"), lab.quotas, hard(kube)) == ("None", ["12", "4"], None)
        assert (
            "of several flavors: limit each by its name as GPU model, h100, a100" in lab.limited(gpus=6).note
        )
        assert (lab.quotas, hard(kube)) == (["8", "4"], {"requests.nvidia.com/gpu": "6"})
        lab.limited()
        assert kube.spec("clusterqueues", "", "h100s")["resourceGroups"] == lab.groups
        assert hard(kube) is None
        assert all("force" not in call for call in kube.calls)


def test_quota_054_a_limit_that_was_written_in_part_is_given_back_exactly() -> None:
    with Kube() as kube:
        lab = QueueLab(kube, by="clustertab-limits")
        kube.breaks = lambda call: (
            call.method == "PATCH" and "resourcequotas" in call.path and "dryRun" not in call.query
        )
        assert lab.limited(gpus=16, jobs=40).state == "requested"
        assert lab.quotas == ["16"]  # which is ours, and not what it was before
        kube.breaks = lambda _: False
        assert lab.limited(gpus=16, jobs=40).state == "set"
        assert (lab.quotas, hard(kube)) == (["16"], {"pods": "40"})
        lab.limited()
        assert (lab.quotas, hard(kube)) == (["8"], None)


def test_quota_054_quotas_that_somebody_else_manages_are_told_of_and_left() -> None:
    with Kube() as kube:
        lab = QueueLab(kube, by="argocd")
        row = lab.limited(gpus=16)
        assert (row.state, lab.quotas) == ("set", ["8"])
        assert row.note.startswith(
            "The quotas of ClusterQueue h100s are managed elsewhere (8 by argocd), so they are left as they are"
        )
        assert hard(kube) == {"requests.nvidia.com/gpu": "16"}
        assert "managed elsewhere" in lab.limited(gpus=16, gpu_model="h100").error
        owners = kube.objects["clusterqueues", "", "h100s"].owners  # Op hands them over
        owners["clustertab-limits", "Apply"] = owners.pop(("argocd", "Apply"))
        assert (lab.limited(gpus=6).state, lab.quotas, hard(kube)) == ("set", ["6"], None)
        kube.edit("clusterqueues", "", "h100s", {"resourceGroups": groups(h100={"nominalQuota": "7"})})
        assert "7 by kubectl-edit and not our 6 any more" in lab.limited(gpus=6).note
        lab.limited()
        assert (lab.quotas, hard(kube)) == (["7"], None)


@pytest.mark.parametrize(
    ("limit", "sentence"), [("16", "may borrow up to 16 GPUs in the cohort eu"), ("0", "")]
)
def test_quota_054_borrowing_is_told_as_far_as_it_goes(limit: str, sentence: str) -> None:
    with Kube() as kube:
        h100 = {"nominalQuota": "8", "borrowingLimit": limit}
        a100 = {"nominalQuota": "8", "borrowingLimit": "8" if int(limit) else "0"}
        lab = QueueLab(kube, by="clustertab-limits", h100=h100, a100=a100)
        limits.set_limit(
            tenant=lab.tenant, name="a100", terms=LimitTerms(gpus=4, gpu_model="a100"), moment=lab.now
        )
        note = lab.limited(gpus=4, gpu_model="h100").note
        assert sentence in note
        assert ("borrow" in note) == bool(sentence)
