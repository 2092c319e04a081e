"""Pods with resource claims are told of and kept aside, since no metric tells which devices a claim was given.

The series is the one that kube-state-metrics publishes since 2.20 in docs/metrics/workload/pod-metrics.md:
`kube_pod_resourceclaim_info{namespace,pod,uid,claim_name,resourceclaim_name,resourceclaim_template_name}`. It stands in
a real Prometheus; no cluster with claims was at hand.
"""

from __future__ import annotations

import pytest

from clusters.connectors.base import BadRow, Row, UsageFact
from clusters.connectors.findings import Finding, Level
from clusters.connectors.prometheus import Scope, Utilisation
from clusters.connectors.prometheus.option_parsing import options_from
from clusters.connectors.prometheus.options import Claims
from tests.contracts.prometheus_reading import connector, findings_of, present
from tests.contracts.prometheus_worlds import Stories, World, Worlds
from tests.integration.prom_lab import Lab

story = Stories()
CLAIMS = (  # pod, the claim as the pod calls it, the claim itself, its template
    ("train", "gpu", "", "one-gpu"),  # before its claim was made
    ("train", "gpu", "train-gpu-x7k2p", "one-gpu"),
    ("train", "nic", "train-nic-9fz4d", "one-nic"),
    ("both", "gpu", "shared-gpu", ""),
    ("over", "gpu", "over-gpu-2cvbn", "one-gpu"),
    ("waits", "gpu", "waits-gpu-q8wrt", "one-gpu"),
)


@story
def _pods(worlds: Worlds) -> None:
    world = worlds.new("claims")
    world.node("n-1", product="NVIDIA-H100-80GB-HBM3")
    world.pod("train", since=60, containers=())
    world.pod("both", since=60)
    world.pod("over", since=60, containers=(), completed=1800,
              phases=[(60, 1800, "Running"), (1800, None, "Succeeded")])  # fmt: skip
    world.pod("waits", since=60, containers=(), node="", phases=[(60, None, "Pending")], scheduled=-1)
    world.pod("alone", since=60)
    for replica in ({}, {"instance": "second:8080"}):
        for pod, name, claim, template in CLAIMS:
            labels = {
                "claim_name": name,
                "resourceclaim_name": claim,
                "resourceclaim_template_name": template,
            }
            identity = {"namespace": "team", "pod": pod, "uid": world.uid(pod)}
            world.series("kube_pod_resourceclaim_info", {**identity, **labels, **replica}, [(60, None, 1)])


@pytest.fixture(scope="module")
def worlds(pushed_lab: Lab) -> Worlds:
    return story.pushed(pushed_lab)


def read(worlds: Worlds, claims: Claims) -> list[Row]:
    source = connector(
        worlds.url, matcher='cluster="claims"', utilisation=Utilisation(scope=Scope.OFF), claims=claims
    )
    return list(source.usage(since=worlds.begin, until=worlds.begin + World.LENGTH - 600, open_keys=()))


def test_each_claim_of_a_pod_with_a_node_is_kept_aside_where_the_operator_wants_it(worlds: Worlds) -> None:
    assert options_from({"claims": "quarantine"}).claims is Claims.QUARANTINE
    rows = read(worlds, Claims.QUARANTINE)
    assert {row.source_key: (row.code, row.values["claim"]) for row in rows if isinstance(row, BadRow)} == {
        "claims-train/gpu/kube_pod_resourceclaim_info": ("unread-claim", "train-gpu-x7k2p"),
        "claims-train/nic/kube_pod_resourceclaim_info": ("unread-claim", "train-nic-9fz4d"),
        "claims-both/gpu/kube_pod_resourceclaim_info": ("unread-claim", "shared-gpu"),
        "claims-over/gpu/kube_pod_resourceclaim_info": ("unread-claim", "over-gpu-2cvbn"),
    }
    facts = [row for row in rows if isinstance(row, UsageFact)]
    assert facts == read(worlds, Claims.OFF)


def test_what_is_requested_otherwise_is_read_as_ever(worlds: Worlds) -> None:
    assert options_from({}).claims is Claims.QUARANTINE
    rows = read(worlds, Claims.OFF)
    facts = {row.job_id: row.gpus for row in rows if isinstance(row, UsageFact)}
    assert facts == {"team/both": 1, "team/alone": 1}
    assert len(rows) == 2


@pytest.mark.parametrize(
    ("claims", "finding"),
    [
        (
            "off",
            Finding(
                Level.WARN,
                "Claims",
                "4 pods had resource claims in the last hour: GPUs that these hold are not billed.",
                "If they hold GPUs, set the option claims to quarantine, or let pods request the extended resource "
                "of their device class.",
            ),
        ),
        (
            "quarantine",
            Finding(
                Level.OK, "Claims", "4 pods had resource claims in the last hour, which are quarantined."
            ),
        ),
    ],
)
def test_the_connection_test_counts_pods_with_claims(worlds: Worlds, claims: str, finding: Finding) -> None:
    now = worlds.begin + World.LENGTH - 60
    with present(worlds.url, now) as url:
        assert findings_of(url, now, {"matcher": 'cluster="claims"', "claims": claims})["Claims"] == finding
