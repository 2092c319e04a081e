"""Op blocks an account of a Kubernetes cluster: its queues are held, or its namespace gets a quota of ours, and what
was there before comes back exactly. The stand-in checks all that it takes and gives with the real schemas."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from clusters import block_review, enforcement_plan, job_control
from clusters.connectors.base import ConnectorError
from clusters.enforcement_plan import SchedulerPort, StalePlanError
from clusters.job_control import CarriedOut, carry_out
from clusters.models import AccountBlock, Act, ActKind, BlockReason, Cluster
from tests.builders import at
from tests.fakes.kubernetes import StandIn
from tests.fakes.kubernetes_http import Call
from tests.fakes.kubernetes_port import a_port, a_world, connected

pytestmark = pytest.mark.django_db(transaction=True)

BY_QUEUE = {"preset": "kueue"}
BY_LABEL = {"account_from": "namespace label", "account_label": "label_billing_example_org_tenant"}


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


def carried(port: SchedulerPort, plan: enforcement_plan.Plan) -> CarriedOut:
    with port:
        return carry_out(port=port, plan=plan, who="op", why="invoice unpaid")


def blocked(cluster: Cluster, account: str = "vision", *, submits: bool = False) -> CarriedOut:
    port = a_port(cluster)
    return carried(port, enforcement_plan.plan_block(port=port, account=account, submits=submits))


def unblocked(cluster: Cluster, account: str = "vision") -> CarriedOut:
    port = a_port(cluster)
    return carried(port, enforcement_plan.plan_unblock(port=port, account=account))


def refused(kube: StandIn, cluster: Cluster, account: str = "vision") -> str:
    """The sentence, and that nothing was changed."""
    before = kube.policy("vision", "day"), kube.policy("vision", "night")
    (act,) = blocked(cluster, account).acts
    assert act.outcome == "failed"
    assert (kube.policy("vision", "day"), kube.policy("vision", "night")) == before
    assert not AccountBlock.objects.filter(ended_at=None).exists()
    return act.error


def test_quota_052_the_local_queues_of_a_namespace_are_held_and_given_back(kube: StandIn) -> None:
    cluster = connected(kube)
    before = {key: stored.body["spec"] for key, stored in kube.objects.items() if "spec" in stored.body}
    port = a_port(cluster)
    plan = enforcement_plan.plan_block(port=port, account="vision")
    (step,) = plan.steps
    assert step.words == (
        "Block vision: stopPolicy of LocalQueue vision/day: None → Hold; "
        "stopPolicy of LocalQueue vision/night: None → Hold. Running pods run on."
    )
    assert plan.notes == ("Pods that do not go through Kueue are not stopped.",)
    assert kube.writes() == []
    assert carried(port, plan).good
    assert (kube.policy("vision", "day"), kube.policy("vision", "night")) == ("Hold", "Hold")
    assert kube.policy("speech", "main") == "None"
    assert len(kube.writes()) == 2
    assert all("force" not in call for call in kube.calls)
    assert unblocked(cluster).good
    after = {key: stored.body["spec"] for key, stored in kube.objects.items() if "spec" in stored.body}
    assert after == before
    owners = kube.objects["localqueues", "vision", "day"].owners
    assert [manager for manager, _ in owners] == ["argocd"]  # and nothing of ours is left in it
    assert not AccountBlock.objects.filter(ended_at=None).exists()


def test_quota_052_a_cluster_queue_is_held_only_where_it_is_the_tenants_alone(newest: StandIn) -> None:
    cluster = connected(newest, dedicated_cluster_queues=["research"])
    assert blocked(cluster).good
    assert newest.policy("", "research") == "Hold"
    assert newest.policy("vision", "day") == "None"  # its ClusterQueue is stopped
    assert newest.policy("vision", "night") == "Hold"
    assert newest.policy("", "shared") == "None"
    assert unblocked(cluster).good
    assert newest.policy("", "research") == newest.policy("vision", "night") == "None"


def test_quota_052_whoever_shares_a_cluster_queue_that_is_said_to_be_one_accounts_is_seen(
    newest: StandIn,
) -> None:
    cluster = connected(newest, dedicated_cluster_queues=["shared"])
    with a_port(cluster) as port:
        assert port.acts.below("vision") == {"speech"}
    cluster.api_server.dedicated_cluster_queues = ["research"]
    cluster.api_server.save()
    with a_port(cluster) as port:
        assert port.acts.below("vision") == set()


def test_quota_052_where_accounts_are_queues_all_that_leads_there_is_held(newest: StandIn) -> None:
    cluster = connected(newest, options=BY_QUEUE)
    port = a_port(cluster)
    plan = enforcement_plan.plan_block(port=port, account="shared", submits=True)
    assert "Kueue refuses no job: new ones are submitted, and wait." in plan.notes
    assert carried(port, plan).good
    held = [newest.policy(*one) for one in (("vision", "night"), ("speech", "main"), ("vision", "day"))]
    assert held == ["Hold", "Hold", "None"]
    with pytest.raises(ConnectorError, match="No LocalQueue of Kueue is, or leads to, the queue 'nobody'"):
        blocked(cluster, "nobody")


@pytest.mark.parametrize("operation", ["Apply", "Update"])
def test_quota_052_a_field_that_somebody_else_owns_is_told_and_never_forced(
    newest: StandIn, operation: str
) -> None:
    if operation == "Update":  # as client-side `kubectl apply` leaves it: the default is its own
        newest.local_queue("vision", "night", "shared", by="kubectl-client-side-apply", operation="Update")
    else:
        newest.objects["localqueues", "vision", "night"].owners["kubectl-client-side-apply", "Apply"] = (
            frozenset({("spec", "stopPolicy")})
        )
    error = refused(newest, connected(newest))
    assert error == (
        'Somebody else manages .spec.stopPolicy (conflict with "kubectl-client-side-apply" using '
        "kueue.x-k8s.io/v1beta2) of LocalQueue vision/night, so it is left as it is. Take the field out of their "
        "manifest and apply that with `kubectl apply --server-side`."
    )
    assert newest.writes() == []  # the other queue was not held either: all was rehearsed first


def test_quota_052_a_queue_that_somebody_else_stopped_stays_theirs(newest: StandIn) -> None:
    cluster = connected(newest)
    newest.edit("localqueues", "vision", "day", {"stopPolicy": "HoldAndDrain"})
    assert blocked(cluster).good
    assert newest.policy("vision", "day") == "HoldAndDrain"
    assert unblocked(cluster).good
    assert newest.policy("vision", "day") == "HoldAndDrain"
    assert newest.policy("vision", "night") == "None"


def test_quota_052_what_somebody_else_holds_as_well_stays_held_without_a_quarrel(newest: StandIn) -> None:
    cluster = connected(newest)
    assert blocked(cluster, "speech").good
    owners = newest.objects["localqueues", "speech", "main"].owners
    owners["argocd", "Apply"] |= {("spec", "stopPolicy")}
    assert unblocked(cluster, "speech").good
    assert newest.policy("speech", "main") == "Hold"
    assert not AccountBlock.objects.filter(ended_at=None).exists()


def test_quota_038_what_op_opened_by_hand_meanwhile_is_left_so(newest: StandIn) -> None:
    cluster = connected(newest)
    assert blocked(cluster).good
    newest.edit("localqueues", "vision", "day", {"stopPolicy": "None"})
    port = a_port(cluster)
    plan = enforcement_plan.plan_unblock(port=port, account="vision")
    assert plan.notes == (
        "stopPolicy of LocalQueue vision/day is None and not our Hold any more: it is left as it is.",
    )
    writes = len(newest.writes())
    (change,) = block_review.review_blocks(moment=at("2026-03-05"), opens=a_port)
    assert change == f"{cluster.name}/vision: {plan.notes[0]}"
    assert len(newest.writes()) == writes
    assert carried(port, plan).good
    assert len(newest.writes()) == writes + 1  # of the other one
    assert newest.objects["localqueues", "vision", "day"].owners["kubectl-edit", "Update"]


def test_quota_053_a_namespace_without_a_queue_gets_a_quota_of_ours(newest: StandIn) -> None:
    cluster = connected(newest)
    port = a_port(cluster)
    plan = enforcement_plan.plan_block(port=port, account="batch")
    assert (
        plan.notes[0] == "A Deployment or Job whose pod ends cannot bring it back before the block is lifted."
    )
    assert carried(port, plan).good
    key = ("resourcequotas", "batch", "clustertab-block")
    assert newest.objects[key].body["spec"] == {
        "hard": {"requests.nvidia.com/gpu": "0", "requests.nvidia.com/mig-1g.5gb": "0"}
    }
    assert blocked(cluster, "batch", submits=True).good
    assert newest.objects[key].body["spec"]["hard"]["pods"] == "0"
    assert unblocked(cluster, "batch").good
    assert key not in newest.objects


@pytest.mark.parametrize("always", [False, True])
def test_quota_053_without_kueue_or_where_the_operator_says_so(always: bool) -> None:
    with StandIn(kueue=("v1beta2",) if always else ()) as kube:
        a_world(kube)
        assert blocked(connected(kube, always_resource_quota=always)).good
        assert ("resourcequotas", "vision", "clustertab-block") in kube.objects
        assert kube.policy("vision", "day") == "None"


def test_quota_053_quotas_of_somebody_else_are_not_changed(newest: StandIn) -> None:
    cluster = connected(newest)
    hard = {"hard": {"requests.nvidia.com/gpu": "4"}}
    newest._make(("resourcequotas", "batch", "team"), {"spec": hard}, "kubectl-create")
    assert blocked(cluster, "batch").good
    assert unblocked(cluster, "batch").good
    assert newest.spec("resourcequotas", "batch", "team") == hard
    newest._make(("resourcequotas", "batch", "clustertab-block"), {"spec": hard}, "kubectl-create")
    (act,) = blocked(cluster, "batch").acts
    assert act.error == (
        "ResourceQuota batch/clustertab-block is somebody else's and is left as it is: rename it, since ours has "
        "this name."
    )
    assert newest.spec("resourcequotas", "batch", "clustertab-block") == hard


def test_quota_053_what_somebody_wrote_into_our_quota_stays(newest: StandIn) -> None:
    cluster = connected(newest)
    assert blocked(cluster, "batch").good
    ours = {"requests.nvidia.com/gpu": "2", "requests.nvidia.com/mig-1g.5gb": "0"}
    newest.edit("resourcequotas", "batch", "clustertab-block", {"hard": ours})
    assert unblocked(cluster, "batch").good
    assert newest.spec("resourcequotas", "batch", "clustertab-block") == {
        "hard": {"requests.nvidia.com/gpu": "2"}
    }


def test_quota_053_all_namespaces_of_a_label_are_one_account(newest: StandIn) -> None:
    cluster = connected(newest, options=BY_LABEL)
    assert blocked(cluster, "acme").good
    assert newest.policy("vision", "day") == newest.policy("vision", "night") == "Hold"
    assert ("resourcequotas", "batch", "clustertab-block") in newest.objects
    assert newest.policy("speech", "main") == "None"
    with pytest.raises(ConnectorError, match="No namespace has label_billing_example_org_tenant"):
        blocked(cluster, "nobody")


def test_quota_055_a_label_that_no_object_carries_cannot_be_blocked(newest: StandIn) -> None:
    options = {"account_from": "pod label", "account_label": "label_team"}
    with pytest.raises(ConnectorError, match="only namespaces and queues of Kueue can be blocked"):
        blocked(connected(newest, options=options))


def test_quota_055_each_refusal_is_a_sentence_and_changes_nothing(newest: StandIn) -> None:
    cluster = connected(newest)
    newest.forbidden = {"patch localqueues"}
    assert "The token has no right to LocalQueue vision/day" in refused(newest, cluster)
    newest.forbidden = set()
    newest.webhook = lambda call: "queues are frozen" if call.path.endswith("night") else ""
    assert refused(newest, cluster) == (
        "A webhook of the cluster refuses the change of LocalQueue vision/night: admission webhook "
        '"vquota.example.org" denied the request: queues are frozen'
    )
    newest.webhook = lambda _: ""
    newest.kueue = ("v1",)
    with pytest.raises(ConnectorError, match="Kueue serves the versions v1 of its API; v1beta1 or v1beta2"):
        blocked(cluster)
    newest.kueue = ("v1beta2",)
    with pytest.raises(ConnectorError, match=r"has no namespace nobody \(namespaces \"nobody\" not found\)"):
        blocked(cluster, "nobody")


def test_quota_055_a_wrong_token_and_a_server_that_is_away(newest: StandIn) -> None:
    cluster = connected(newest, token="another")
    with pytest.raises(ConnectorError, match="does not accept the token"):
        blocked(cluster)
    cluster.api_server.base_url = "http://127.0.0.1:9"
    cluster.api_server.save()
    with pytest.raises(ConnectorError, match="Nothing answers at"):
        blocked(cluster)


def test_quota_055_what_is_deleted_meanwhile_is_not_made_anew(newest: StandIn) -> None:
    cluster = connected(newest)
    port = a_port(cluster)
    plan = enforcement_plan.plan_block(port=port, account="speech")

    def delete(call: Call) -> None:
        if call.method == "PATCH" and ("localqueues", "speech", "main") in newest.objects:
            newest.take("localqueues", "speech", "main")

    newest.before = delete
    (act,) = carried(port, plan).acts
    assert act.outcome == "failed"
    assert "LocalQueue speech/main changed at the same moment" in act.error
    assert ("localqueues", "speech", "main") not in newest.objects


def test_quota_055_the_block_of_a_namespace_that_is_gone_ends(newest: StandIn) -> None:
    cluster = connected(newest)
    assert blocked(cluster, "batch").good
    newest.take("resourcequotas", "batch", "clustertab-block")
    newest.take("namespaces", "", "batch")
    assert unblocked(cluster, "batch").good
    assert not AccountBlock.objects.filter(ended_at=None).exists()


def test_quota_055_a_plan_of_a_world_that_changed_is_not_carried_out(newest: StandIn) -> None:
    cluster = connected(newest)
    port = a_port(cluster)
    plan = enforcement_plan.plan_block(port=port, account="vision")
    newest.local_queue("vision", "extra", "shared")
    with pytest.raises(StalePlanError):
        carried(port, plan)
    assert newest.writes() == []


@pytest.mark.parametrize("account", ["vision", "batch"])
def test_quota_056_blocked_is_said_when_the_status_shows_it(newest: StandIn, account: str) -> None:
    cluster = connected(newest)
    newest.controllers = False
    (act,) = blocked(cluster, account).acts
    assert act.outcome == "unknown"
    assert "It is written, and the cluster does not obey it yet" in act.error
    with a_port(cluster) as port:
        job_control.tidy(port=port)
        assert Act.objects.get().outcome == "unknown"
        newest.run_controllers()
        job_control.tidy(port=port)
    assert Act.objects.get().outcome == "done"
    newest.controllers = True
    assert unblocked(cluster, account).good
    assert newest.policy("vision", "day") == "None"


def test_quota_056_a_status_of_before_does_not_count(newest: StandIn) -> None:
    """A queue that was inactive for another reason says nothing about our hold."""
    cluster = connected(newest)
    newest.edit("clusterqueues", "", "shared", {"stopPolicy": "Hold"})
    newest.run_controllers()
    newest.controllers = False
    (act,) = blocked(cluster, "speech").acts
    assert act.outcome == "unknown"


@pytest.mark.parametrize("moment", ["breaks", "loses"])
def test_a_connection_that_breaks_between_two_writes_is_settled_by_looking(
    newest: StandIn, moment: str
) -> None:
    cluster = connected(newest)
    setattr(
        newest,
        moment,
        lambda call: call.path.endswith("night") and call.method == "PATCH" and not call.query.get("dryRun"),
    )
    (act,) = blocked(cluster).acts
    assert act.outcome == "unknown"
    setattr(newest, moment, lambda _: False)
    with a_port(cluster) as port:
        job_control.tidy(port=port)
    if moment == "loses":
        assert Act.objects.get().outcome == "done"
        assert unblocked(cluster).good
    else:
        assert Act.objects.get().outcome == "failed"
    assert newest.policy("vision", "day") == newest.policy("vision", "night") == "None"
    assert not AccountBlock.objects.filter(ended_at=None).exists()


def test_a_write_that_is_refused_later_has_the_earlier_ones_taken_back(newest: StandIn) -> None:
    cluster = connected(newest)
    newest.webhook = lambda call: (
        "now" if call.path.endswith("night") and not call.query.get("dryRun") else ""
    )
    assert "denied the request: now" in refused(newest, cluster)


def test_a_hold_of_ours_that_nobody_remembers_goes_with_the_next_block(newest: StandIn) -> None:
    cluster = connected(newest)
    assert blocked(cluster).good
    BlockReason.objects.update(ended_at="2026-03-05T12:00:00Z")
    AccountBlock.objects.update(ended_at="2026-03-05T12:00:00Z")
    port = a_port(cluster)
    plan = enforcement_plan.plan_block(port=port, account="vision")
    assert "it is still so from an earlier block from here" in plan.steps[0].words
    assert carried(port, plan).good
    assert unblocked(cluster).good
    assert newest.policy("vision", "day") == newest.policy("vision", "night") == "None"


def test_jobs_of_kubernetes_are_not_held(newest: StandIn) -> None:
    request = enforcement_plan.Request(kind=ActKind.HOLD, account="vision")
    with (
        a_port(connected(newest)) as port,
        pytest.raises(ConnectorError, match="are not held, released or canceled"),
    ):
        enforcement_plan.plan(port=port, request=request)
