"""How pods end is seen by more than their phase, so that who was preempted or lost a node is priced by it.

The series are those that kube-state-metrics publishes in docs/metrics/workload/pod-metrics.md and generates in
internal/store/pod.go: `kube_pod_status_reason{namespace,pod,uid,reason}` is 0 or 1 for each of its five reasons, and
`kube_pod_container_status_terminated_reason` and `…_last_terminated_reason{namespace,pod,uid,container,reason}` are 1
for the reason that holds. The workloads of Kueue come by the configuration in docs/how-to/connect-kubernetes.md, which
is read here as docs/metrics/extend/customresourcestate-metrics.md defines it. They stand in a real Prometheus; no
cluster that evicts was at hand.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import yaml

from clusters.connectors.findings import Finding, Level
from clusters.connectors.prometheus import Scope, Utilisation
from clusters.connectors.prometheus.queries import WORKLOAD_CONDITION
from clusters.connectors.prometheus.responses import Series
from tests.contracts.prometheus_reading import connector, findings_of, present, read
from tests.contracts.prometheus_worlds import Stories, World, Worlds
from tests.integration.prom_lab import Lab

story = Stories()
REASONS = ("Evicted", "NodeAffinity", "NodeLost", "Shutdown", "UnexpectedAdmissionError")
ENDS = 1800
OUTCOMES = {  # pod: phase that it ends in, reason of the pod, reason of its container, and the state of its run
    "done": ("Succeeded", "", "Completed", "Succeeded"),
    "wrong": ("Failed", "", "Error", "Failed"),
    "pressed": ("Failed", "Evicted", "Error", "Evicted"),
    "greedy": ("Failed", "", "OOMKilled", "OOMKilled"),
    "rebooted": ("Failed", "Shutdown", "Error", "Shutdown"),
    "late-job-1": ("Failed", "", "Error", "Preempted"),  # Kueue ended it: it got a signal, and failed by that
    "lost": ("", "NodeLost", "", "NodeLost"),
    "deleted": ("", "", "", "Unknown"),
    "restarted": (
        "",
        "",
        "OOMKilled",
        "Unknown",
    ),  # its container was, and ran again until the pod was deleted
    "set-w-0": ("", "", "", "Preempted"),
    "set-w-1": ("Succeeded", "", "Completed", "Succeeded"),  # had come to its end before
    "idle-job-1": ("", "", "", "Evicted"),  # by an operator who stopped the queue
    "solo": ("", "", "", "NodeLost"),  # Kueue's workload of the pod itself
    "set-w-2": ("", "", "", "Unknown"),  # began after the eviction
}
OWNERS = {"late-job-1": ("Job", "late-job"), "idle-job-1": ("Job", "idle-job")} | {
    f"set-w-{number}": ("Job", "set-w") for number in range(3)
}
EVICTIONS = (  # kind and name of the owner, namespace, reason, second
    ("Job", "late-job", "team", "Preempted", ENDS - 20),
    ("JobSet", "set", "team", "Preempted", ENDS - 5),
    ("JobSet", "set", "another", "NodeFailures", ENDS - 1),  # of the same name, and of others
    ("Job", "idle-job", "team", "LocalQueueStopped", ENDS - 30),
    ("Pod", "solo", "team", "NodeFailures", ENDS - 30),
    ("Job", "wrong", "team", "Preempted", ENDS - 30),  # nobody's workload here: this pod has no owner
)


@story
def _endings(worlds: Worlds) -> None:
    world = worlds.new("outcomes")
    world.node("n-1", product="NVIDIA-H100-80GB-HBM3")
    for pod, (phase, reason, of_container, _) in OUTCOMES.items():
        begins = ENDS if pod == "set-w-2" else 60
        ends = 900 if pod == "set-w-1" else 3000 if pod == "set-w-2" else ENDS
        over = [(ends, None, phase)] if phase else []
        world.pod(
            pod,
            since=begins,
            until=None if phase else ends,
            phases=[(begins, ends, "Running"), *over],
            completed=ends if phase else None,
            owner=OWNERS.get(pod, ("", "")),
        )
        identity = {"namespace": "team", "pod": pod, "uid": world.uid(pod)}
        until = None if phase else ends
        replicas: tuple[dict[str, str], ...] = ({}, {"instance": "second:8080"})  # of kube-state-metrics
        for replica in replicas:
            for one in REASONS:
                value = [(begins, until, 0.0)] if one != reason else [(ends - 60, until, 1.0)]
                world.series("kube_pod_status_reason", {**identity, "reason": one, **replica}, value)
        if of_container:
            metric = "last_terminated_reason" if pod == "restarted" else "terminated_reason"
            labels = {**identity, "container": "main", "reason": of_container}
            since = ends if phase else 600
            world.series(f"kube_pod_container_status_{metric}", labels, [(since, until, 1.0)])
    for namespace in ("team", "another"):
        owned = {"namespace": namespace, "job_name": "set-w", "owner_kind": "JobSet", "owner_name": "set"}
        world.series("kube_job_owner", {**owned, "owner_is_controller": "true"}, [(0, None, 1)])
    for kind, name, namespace, reason, second in EVICTIONS:
        labels = {"namespace": namespace, "owner_kind": kind, "owner_name": name, "type": "Evicted"}
        condition = {**labels, "reason": reason, "status": "True"}
        # Kueue admits it again soon, and then evicts it once more, when other pods run.
        world.series(WORKLOAD_CONDITION, condition, [(second, second + 90, world.begin + second)])
        again = {**labels, "reason": "QuotaReserved", "status": "False"}
        world.series(WORKLOAD_CONDITION, again, [(second + 90, 5000, world.begin + second + 90)])
        world.series(
            WORKLOAD_CONDITION, condition | {"reason": "Preempted"}, [(5000, None, world.begin + 5000)]
        )


@story
def _owned_twice(worlds: Worlds) -> None:
    """Two owners of one pod, and every series of it once more by a second replica under another name of the node."""
    world = worlds.new("twice")
    world.node("n-1", product="NVIDIA-H100-80GB-HBM3")
    for replica in ({}, {"instance": "second:8080"}):
        identity = {"namespace": "team", "pod": "p", "uid": world.uid("p"), **replica}
        devices = {"container": "main", "node": "n-1", "resource": "nvidia_com_gpu", "unit": "integer"}
        world.series("kube_pod_container_resource_requests", identity | devices, [(60, None, 1)])
        world.series("kube_pod_info", identity | {"node": "n-1"}, [(60, None, 1)])
        world.series("kube_pod_status_scheduled_time", identity, [(60, None, world.begin + 60)])
        world.series("kube_pod_completion_time", identity, [(ENDS, None, world.begin + ENDS)])
        for phase, value in (("Failed", 1.0), ("Running", 0.0)):
            world.series("kube_pod_status_phase", identity | {"phase": phase}, [(ENDS, None, value)])
        for kind, name in (("Job", "one"), ("Job", "two"), ("Workflow", "flow")):
            owned = {"owner_kind": kind, "owner_name": name, "owner_is_controller": "true"}
            world.series("kube_pod_owner", identity | owned, [(60, None, 1)])
            job = {"namespace": "team", "job_name": name, "owner_is_controller": "true", **replica}
            for above in ("set-a", "set-b"):
                owner = {"owner_kind": "JobSet", "owner_name": above}
                world.series("kube_job_owner", job | owner, [(0, None, 1)])
        for reason in ("Evicted", "NodeLost"):
            world.series("kube_pod_status_reason", identity | {"reason": reason}, [(ENDS, None, 1)])


@pytest.fixture(scope="module")
def worlds(pushed_lab: Lab) -> Worlds:
    return story.pushed(pushed_lab)


def states(worlds: Worlds, world: str, **options: Any) -> dict[str, str]:
    until = worlds.begin + World.LENGTH - 600
    facts, _ = read(
        worlds.url,
        worlds.begin,
        until,
        matcher=f'cluster="{world}"',
        utilisation=Utilisation(scope=Scope.OFF),
        **options,
    )
    assert all(fact.ended is not None for fact in facts)
    return {fact.job_id.removeprefix("team/"): fact.state for fact in facts}


@pytest.mark.sample
def test_pods_that_were_preempted_evicted_or_lost_say_so_and_others_are_unknown(worlds: Worlds) -> None:
    assert states(worlds, "outcomes") == {pod: state for pod, (*_, state) in OUTCOMES.items()}


def test_two_owners_and_two_replicas_of_the_exporter_fail_no_pull(worlds: Worlds) -> None:
    assert states(worlds, "twice") == {"p": "NodeLost"}


def test_outcomes_cost_a_fixed_number_of_queries(worlds: Worlds) -> None:
    queries: list[str] = []
    source = connector(worlds.url, matcher='cluster="outcomes"', utilisation=Utilisation(scope=Scope.OFF))
    instant = source.client.instant

    def noted(query: str, at: int) -> list[Series]:
        queries.append(query)
        return instant(query, at)

    with mock.patch.object(source.client, "instant", noted):
        list(source.usage(since=worlds.begin, until=worlds.begin + World.LENGTH - 600, open_keys=()))

    of_outcomes = [query for query in queries if "reason" in query or "workload_condition" in query]
    assert (
        len(of_outcomes) == 7
    )  # whether there is each of four metrics, and the values of three; Kueue's is a range


def test_the_connection_test_counts_what_tells_of_outcomes(worlds: Worlds) -> None:
    now = worlds.begin + ENDS + 600
    with present(worlds.url, now) as url:
        outcomes = findings_of(url, now, {"matcher": 'cluster="outcomes"'})["Outcomes"]
    assert outcomes == Finding(
        Level.OK,
        "Outcomes",
        "Of pods with devices in the last hour, and of conditions of Kueue, there were: kube_pod_status_reason 14, "
        "kube_pod_container_status_terminated_reason 7, kube_pod_container_status_last_terminated_reason 1, "
        "kube_customresource_kueue_workload_condition_time 12.",
    )


def test_the_configuration_for_kueue_in_the_docs_makes_the_series_that_is_read() -> None:
    """By the published rules: prefix and name, a label for each path, an element of the list as `[key=value]`."""
    docs = Path("docs/how-to/connect-kubernetes.md").read_text()
    block = next(text for text in docs.split("```yaml")[1:] if "CustomResourceStateMetrics" in text)
    values = yaml.safe_load(block.partition("```")[0])
    [resource] = values["customResourceState"]["config"]["spec"]["resources"]
    [metric] = resource["metrics"]
    gauge = metric["each"]["gauge"]

    assert f"kube_customresource_{metric['name']}" == WORKLOAD_CONDITION
    assert set(resource["labelsFromPath"]) | set(gauge["labelsFromPath"]) >= {
        *("namespace", "owner_kind", "owner_name", "type", "status", "reason"),
    }
    assert (gauge["path"], gauge["valueFrom"]) == (["status", "conditions"], ["lastTransitionTime"])
    assert values["rbac"]["extraRules"][0]["resources"] == ["workloads"]
