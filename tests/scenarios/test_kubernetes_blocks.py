"""Budgets, unpaid invoices and Op's hand block a Kubernetes account through one door; how its API server is written
down, and what the test of the connection says of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes_validate import validate

from billing.dunning.scheduler_blocks import BlockTally
from billing.models import QuotaAction, QuotaBlock, QuotaBlockState
from billing.quotas import blocks, quotas, review
from billing.quotas.quotas import Setter
from clusters import connection_test, enforcement_plan, job_control
from clusters.connectors.findings import Level
from clusters.connectors.kubernetes.rights import RIGHTS, manifest
from clusters.models import AccountBlock, ApiServer, BlockReason, Cluster
from portal.core.audit.models import AuditEntry
from portal.env import ROOT
from tests.builders import a_plan, a_tenant, at
from tests.fakes.kubernetes import TOKEN, StandIn
from tests.fakes.kubernetes_port import a_port, a_world, connected
from tests.quota_stories import a_quota, spend
from tests.scenarios.configuring import Op, run
from tests.scenarios.test_nominal_quotas import groups
from tests.scenarios.test_quotas_block import blocks_terms

pytestmark = pytest.mark.django_db(transaction=True)

KUBE = """
[[cluster]]
name = "kube"
kind = "prometheus"
[cluster.connection]
url = "http://127.0.0.1:9"
[cluster.api_server]
url = "https://kube.example.org:6443"
token = "env:KUBE_TOKEN"
"""


@pytest.fixture
def kube() -> Iterator[StandIn]:
    with StandIn() as kube:
        a_world(kube)
        yield kube


@pytest.fixture
def op(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Op:
    monkeypatch.setenv("KUBE_TOKEN", TOKEN)
    return Op(tmp_path)


class Lab:
    """Vision may spend 1,000.00 a month; its account is the namespace vision."""

    def __init__(self, kube: StandIn, **columns: Any) -> None:
        self.kube = kube
        self.cluster = connected(kube, **columns)
        accounts = [(self.cluster, "vision")]
        self.tenant = a_tenant("vision", plan=a_plan(), accounts=accounts, email="bills@vision.example")
        self.now = at("2026-03-05 12:00")

    def goes_by(self, seconds: int = 60) -> BlockTally:
        self.now += timedelta(seconds=seconds)
        review.review_quotas(moment=self.now)
        return blocks.enforce_blocks(moment=self.now, opens=a_port)

    @property
    def states(self) -> list[str]:
        return list(QuotaBlock.objects.order_by("pk").values_list("state", flat=True))


def test_quota_052_a_budget_that_is_used_up_holds_the_queues_until_it_is_raised(kube: StandIn) -> None:
    lab = Lab(kube)
    row = a_quota(lab.tenant, action=QuotaAction.NO_GPU_JOBS)
    spend(lab.cluster, "1000.00")
    done = lab.goes_by()
    assert (done.blocked, done.troubles) == (1, [])
    assert kube.policy("vision", "day") == kube.policy("vision", "night") == "Hold"
    assert lab.states == [QuotaBlockState.BLOCKED]
    terms = blocks_terms(row, amount=Decimal(1500))
    quotas.set_quota(tenant=lab.tenant, name=row.name, terms=terms, by=Setter.OPERATOR, moment=lab.now)
    assert lab.goes_by().lifted == 1
    assert kube.policy("vision", "day") == kube.policy("vision", "night") == "None"


def test_quota_036_on_kubernetes_the_block_stands_until_its_last_reason_goes(kube: StandIn) -> None:
    lab = Lab(kube)
    a_quota(lab.tenant, action=QuotaAction.NO_SUBMISSIONS)
    spend(lab.cluster, "1000.00")
    assert lab.goes_by().blocked == 1
    quota = kube.spec("resourcequotas", "vision", "clustertab-block")
    assert quota == {"hard": {"pods": "0"}}  # besides its queues, which are held
    with a_port(lab.cluster) as port:
        for source in ("dunning", "operator"):
            plan = enforcement_plan.plan_block(port=port, account="vision", source=source)
            assert "Nothing is sent to Kubernetes." in plan.steps[0].words
            assert job_control.carry_out(port=port, plan=plan, who="op").good
        for source in ("dunning", "quota:" + str(QuotaBlock.objects.get().quota_id), "operator"):
            assert kube.policy("vision", "day") == "Hold"
            plan = enforcement_plan.plan_unblock(port=port, account="vision", source=source)
            assert job_control.carry_out(port=port, plan=plan, who="op").good
            if source.startswith("quota"):  # it alone refused submissions
                assert ("resourcequotas", "vision", "clustertab-block") not in kube.objects
    assert kube.policy("vision", "day") == "None"
    assert not BlockReason.objects.filter(ended_at=None).exists()


def test_quota_055_what_is_refused_is_tried_again_at_growing_distances(kube: StandIn) -> None:
    lab = Lab(kube)
    a_quota(lab.tenant, action=QuotaAction.NO_GPU_JOBS)
    spend(lab.cluster, "1000.00")
    kube.forbidden = {"patch localqueues"}
    (trouble,) = lab.goes_by().troubles
    assert "The token has no right to LocalQueue vision/day" in trouble
    assert "`test_connection` prints what to grant" in QuotaBlock.objects.get().error
    assert lab.goes_by(60).troubles == []  # not due yet
    assert len(lab.goes_by(300).troubles) == 1
    assert QuotaBlock.objects.get().next_at - lab.now == timedelta(minutes=10)
    kube.forbidden = set()
    assert lab.goes_by(600).blocked == 1
    assert AccountBlock.objects.filter(ended_at=None).count() == 1


def test_quota_052_a_cluster_queue_that_another_tenant_uses_too_is_not_stopped_by_a_budget(
    kube: StandIn,
) -> None:
    lab = Lab(kube, dedicated_cluster_queues=["shared"])
    a_tenant("speech", accounts=[(lab.cluster, "speech")])
    a_quota(lab.tenant, action=QuotaAction.NO_GPU_JOBS)
    spend(lab.cluster, "1000.00")
    (trouble,) = lab.goes_by().troubles
    assert "speech of speech, which would be blocked too" in trouble
    assert kube.policy("", "shared") == kube.policy("vision", "day") == "None"


def test_the_api_server_stands_in_the_file_and_its_token_nowhere(op: Op) -> None:
    op.applies(KUBE)
    row = ApiServer.objects.get()
    assert row.token.reveal() == TOKEN
    since = row.credentials_changed_at
    op.applies(KUBE)
    assert ApiServer.objects.get().credentials_changed_at == since
    changed = KUBE + 'dedicated_cluster_queues = ["research"]\nalways_resource_quota = true\n'
    lines = "\n".join(op.applies(changed))
    assert "research" in lines
    assert TOKEN not in lines
    assert TOKEN not in json.dumps(list(AuditEntry.objects.values()), default=str)
    elsewhere = changed.replace("kube.example.org", "eve.example.org").replace(
        'token = "env:KUBE_TOKEN"\n', ""
    )
    assert "what is kept secret was given for https://kube.example.org:6443" in op.is_refused(elsewhere)[0]
    slurm = KUBE.replace('kind = "prometheus"', 'kind = "slurm"')
    assert "which is for clusters of the kind 'prometheus'" in "\n".join(
        op.is_refused(slurm.replace("kube", "s"))
    )


def test_quota_055_the_test_of_the_connection_prints_the_rights_that_are_missing(kube: StandIn) -> None:
    cluster = connected(kube, dedicated_cluster_queues=["a", "b"])
    for name, owner in (("a", "clustertab-limits"), ("b", "argocd")):
        kube.cluster_queue(name, by=owner, resourceGroups=groups(h100={"nominalQuota": "8"}))
    findings = {one.subject: one for one in connection_test.examine(cluster=cluster, clock=lambda: 0)}
    assert findings["Rights"].level is Level.OK
    assert findings["Kueue"].sentence == "Queues are stopped over v1beta2."
    assert findings["ClusterQueue a"].sentence == "Limits of GPUs are its nominalQuota: 8 of h100."
    assert findings["ClusterQueue b"].sentence == (
        "Limits of GPUs are written as a ResourceQuota of ours, since its quotas are managed elsewhere (8 by argocd)."
    )
    assert findings["GPU resources"].sentence == (
        "A ResourceQuota bars nvidia.com/gpu, nvidia.com/mig-1g.5gb."
    )
    kube.forbidden = {"patch localqueues", "delete resourcequotas"}
    findings = {one.subject: one for one in connection_test.examine(cluster=cluster, clock=lambda: 0)}
    assert findings["Rights"].level is Level.FAIL
    assert "may not delete resourcequotas, patch localqueues" in findings["Rights"].sentence
    assert manifest() in findings["Rights"].mend
    assert kube.writes() == []
    (warning,) = connection_test._in_clear(ApiServer(base_url="http://kube.example.org"))
    assert "travels in clear" in warning.sentence


def test_quota_055_the_manifest_is_what_kubernetes_takes_and_grants_no_more() -> None:
    objects = list(yaml.safe_load_all(manifest()))
    for one in objects:
        validate(one, "1.31", strict=True)
    (role,) = (one for one in objects if one["kind"] == "ClusterRole")
    assert len(role["rules"]) == len(RIGHTS)
    assert all("*" not in rule["verbs"] and "*" not in rule["resources"] for rule in role["rules"])
    named = [rule for rule in role["rules"] if rule.get("resourceNames")]
    uses = [one.use for one in RIGHTS]
    assert any("HoldAndDrain" in use for use in uses)
    assert any("nominalQuota" in use for use in uses)
    assert all(f"# {use}\n" in manifest() for use in uses)
    assert [(rule["verbs"], rule["resourceNames"]) for rule in named] == [
        (["get", "patch", "delete"], ["clustertab-block"])
    ]


def test_op_blocks_a_namespace_by_the_command(kube: StandIn) -> None:
    connected(kube)
    preview = run("block_account", "kube", "batch")
    assert "requests.nvidia.com/gpu of ResourceQuota batch/clustertab-block: none → 0" in preview
    assert "A Deployment or Job whose pod ends cannot bring it back" in preview
    assert kube.writes() == []
    assert "Done: Block batch" in run("block_account", "kube", "batch", "--yes")
    assert "Done: Unblock batch" in run("unblock_account", "kube", "batch", "--yes")
    assert ("resourcequotas", "batch", "clustertab-block") not in kube.objects
    assert Cluster.objects.get().acts.count() == 2


def test_the_docs_have_the_manifest_that_the_test_of_the_connection_prints() -> None:
    assert manifest() in (ROOT / "docs/how-to/connect-kubernetes.md").read_text()
