"""A pod's job is what made it, so that people find the training that they started and not only its pods.

The series are those that kube-state-metrics publishes in docs/metrics/workload: `kube_pod_owner{namespace,pod,uid,
owner_kind,owner_name,owner_is_controller}` (pod-metrics.md), `kube_replicaset_owner{namespace,replicaset,owner_…}`
(replicaset-metrics.md) and `kube_job_owner{namespace,job_name,owner_…}` (job-metrics.md). An object without an owner
has its series too, with empty labels. They stand in a real Prometheus; no cluster of these operators was at hand.
"""

from __future__ import annotations

from typing import Any

import pytest

from clusters.connectors.base import UsageFact
from clusters.connectors.findings import Finding, Level
from clusters.connectors.prometheus import Scope, Utilisation
from tests.contracts.prometheus_reading import connector, findings_of, present
from tests.contracts.prometheus_worlds import Stories, World, Worlds
from tests.integration.prom_lab import Lab

story = Stories()
RAY = "label_ray_io_cluster"
OWNED = {  # pod: what made it, and the job that people started
    "torch-master-0": ("PyTorchJob", "torch", "torch"),
    "torch-worker-0": ("PyTorchJob", "torch", "torch"),
    "set-work-0-0-abcde": ("Job", "set-work-0", "set"),
    "mpi-launcher-x2x4z": ("Job", "mpi-launcher", "mpi"),
    "nightly-29000000-k2k2k": ("Job", "nightly-29000000", "nightly-29000000"),
    "plain-8q8q8": ("Job", "plain", "plain"),
    "serve-7c9f-h5h5h": ("ReplicaSet", "serve-7c9f", "serve"),
    "lone-5d5d5-z1z1z": ("ReplicaSet", "lone-5d5d5", "lone-5d5d5"),
    "notebook-0": ("StatefulSet", "notebook", "notebook"),
    "old-exporter": ("<none>", "<none>", "old-exporter"),
    "static-n-1": ("Node", "n-1", "static-n-1"),
    "bare": ("", "", "bare"),
    # Whoever makes a pod may write any text as the name of its owner: the API server only wants it not empty.
    "forged-1": ("ReplicaSet", 'two\nlines"} or vector(1)', "forged-1"),
    "forged-2": ("Job", "\ufffd" * 300, "forged-2"),
    "forged-3": ("Workflow", "x" * 3000, "forged-3"),
}
ABOVE = (  # kind, name, and what made it
    ("job_name", "set-work-0", "JobSet", "set"),
    ("job_name", "mpi-launcher", "MPIJob", "mpi"),
    ("job_name", "nightly-29000000", "CronJob", "nightly"),
    ("job_name", "plain", "", ""),
    ("replicaset", "serve-7c9f", "Deployment", "serve"),
    ("replicaset", "lone-5d5d5", "", ""),
)
GONE = {"set-work-0-0-abcde", "plain-8q8q8"}  # pods that ended, and whose Jobs are no more


@story
def _trainings(worlds: Worlds) -> None:
    world = worlds.new("jobs")
    world.node("n-1", product="NVIDIA-H100-80GB-HBM3")
    for pod, (kind, name, _) in OWNED.items():
        world.pod(pod, since=60, until=1800 if pod in GONE else None, owner=(kind, name))
    for label, name, kind, owner in ABOVE:
        metric = "kube_job_owner" if label == "job_name" else "kube_replicaset_owner"
        until = 1900 if any(OWNED[pod][1] == name for pod in GONE) else None
        for namespace in ("team", "another"):  # which has objects of the same names, made by others
            owned = {"owner_kind": kind, "owner_name": owner if namespace == "team" else f"{owner}-of-others"}
            labels = {
                "namespace": namespace,
                label: name,
                **owned,
                "owner_is_controller": "true" if kind else "",
            }
            world.series(metric, labels, [(0, until, 1)])
    world.pod(
        "ray-head",
        since=60,
        owner=("RayCluster", "trial-raycluster-q9q9q"),
        pod_labels={RAY: "trial", "label_person": "ben", "label_kueue_x_k8s_io_queue_name": "research"},
    )
    world.pod("two-owners", since=60, owner=("Workflow", "flow"))
    identity = {"namespace": "team", "pod": "two-owners", "uid": world.uid("two-owners")}
    owned = {"owner_kind": "Zeta", "owner_name": "zeta", "owner_is_controller": "false"}
    world.series("kube_pod_owner", {**identity, **owned}, [(60, None, 1)])


@pytest.fixture(scope="module")
def worlds(pushed_lab: Lab) -> Worlds:
    return story.pushed(pushed_lab)


def read(worlds: Worlds, world: str, **options: Any) -> dict[str, UsageFact]:
    """By the pod's name."""
    source = connector(
        worlds.url, matcher=f'cluster="{world}"', utilisation=Utilisation(scope=Scope.OFF), **options
    )
    rows = source.usage(since=worlds.begin, until=worlds.begin + World.LENGTH - 600, open_keys=())
    return {row.job_id.removeprefix("team/"): row for row in rows if isinstance(row, UsageFact)}


@pytest.mark.sample
def test_a_pods_job_is_what_people_started(worlds: Worlds) -> None:
    facts = read(worlds, "jobs")

    assert {pod: fact.name for pod, fact in facts.items()} == {
        **{pod: job for pod, (_, _, job) in OWNED.items()},
        "ray-head": "trial-raycluster-q9q9q",
        "two-owners": "flow",
    }
    assert {pod for pod, fact in facts.items() if fact.ended is not None} == GONE
    assert len({fact.source_key for fact in facts.values()}) == len(facts)  # still one record for each pod


def test_labels_that_the_operator_names_say_job_and_user_before_the_owner_does(worlds: Worlds) -> None:
    facts = read(worlds, "jobs", job_labels=("label_absent", RAY), user_label="label_person")

    labels = {pod: (fact.name, fact.user, fact.queue) for pod, fact in facts.items()}
    assert labels["ray-head"] == ("trial", "ben", "research")
    assert labels["torch-worker-0"] == ("torch", "", "")


def test_the_connection_test_counts_what_pods_really_tell(worlds: Worlds) -> None:
    with present(worlds.url, worlds.begin + World.LENGTH - 60) as url:
        options = {"matcher": 'cluster="jobs"', "user_label": "label_person"}
        finding = findings_of(url, worlds.begin + World.LENGTH - 60, options)["Pods"]
    assert finding == Finding(
        Level.OK,
        "Pods",
        "Of 15 pods with devices in the last hour, 0 request them by init containers, 12 tell their owner, 0 their "
        "creation, 0 a priority class, 1 a queue, 1 a user.",
    )
