"""A real Prometheus whose pods are known: what the connector tells of three days is what really was."""

from __future__ import annotations

import random
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest

from clusters.connectors.base import IncompleteHour, NodeSeen, NodeState, Reading, UsageFact
from clusters.connectors.prometheus import KUEUE, AccountFrom, Attribution
from tests.contracts.ledger_rules import Merged
from tests.contracts.prometheus_reading import (
    HOUR,
    billable,
    connector,
    gpu_seconds,
    present,
    read,
    uid_of,
    until_of,
)
from tests.integration.prom_lab import Lab

LabReading = tuple[dict[str, UsageFact], Reading, Lab]


@pytest.fixture(scope="module")
def reading_of_lab(prom_lab: Lab) -> LabReading:
    """All three days in one pass: facts by uid, for here every pod has one container with devices."""
    facts, source = read(prom_lab.url, prom_lab.base, prom_lab.end)
    by_uid = {uid_of(fact): fact for fact in facts}
    assert len(by_uid) == len(facts)
    return by_uid, source.reading, prom_lab


def _named(usage: LabReading, name: str) -> list[UsageFact]:
    """The runs of pods of that name."""
    return sorted(
        (fact for fact in usage[0].values() if fact.job_id.partition("/")[2] == name),
        key=lambda fact: fact.started or 0,
    )


def test_every_pod_ends_within_30_s_of_the_truth_unless_nobody_looked(reading_of_lab: LabReading) -> None:
    facts, _, lab = reading_of_lab
    (outage,) = lab.truth["server_down"]
    seen = 0
    for pod in billable(lab.truth):
        if pod["pod"] == "blink-gone":  # ten seconds between two scrapes leave no trace at all
            continue
        fact = facts[pod["uid"]]
        assert fact.started == pod["scheduled"]
        if fact.state.endswith("(estimated end)"):
            assert outage[0] <= pod["ended"] < outage[1]
            assert pod["ended"] - 2430 <= until_of(fact) <= pod["ended"]
        elif pod["ended"] is None:
            assert fact.ended is None
            assert lab.end - 90 <= until_of(fact) <= lab.end
        else:
            assert fact.ended is not None
            assert pod["ended"] - 30 <= fact.ended <= pod["ended"]
            seen += 1
    assert seen == 347


def test_the_total_is_within_15_hundredths_of_a_percent(reading_of_lab: LabReading) -> None:
    facts, _, lab = reading_of_lab
    truth = sum(
        ((pod["ended"] or lab.end) - pod["scheduled"])
        * (Fraction(pod["fraction"]) if pod["fraction"] else pod["gpus"])
        for pod in billable(lab.truth)
    )
    read = sum(gpu_seconds(fact) for fact in facts.values())
    assert abs(read - truth) / truth < Fraction(15, 10_000)


def test_pods_that_vanished_while_nobody_looked_are_marked_and_told(reading_of_lab: LabReading) -> None:
    marked = sorted(
        fact.job_id for fact in reading_of_lab[0].values() if fact.state == "Unknown (estimated end)"
    )
    assert marked == ["vision/gap-end-deleted", "vision/job-282-9c1db", "vision/job-284-0f434"]
    (note,) = [note for note in reading_of_lab[1].notes if "vanished" in note]
    assert note.startswith("3 pods vanished while kube-state-metrics was not seen")
    assert all(pod in note for pod in marked)


def test_a_pod_that_ended_in_the_outage_and_was_kept_has_its_exact_end(reading_of_lab: LabReading) -> None:
    (fact,) = _named(reading_of_lab, "gap-end-kept")
    (pod,) = [pod for pod in reading_of_lab[2].truth["pods"] if pod["pod"] == "gap-end-kept"]
    assert (fact.started, fact.ended, fact.state) == (pod["scheduled"], pod["ended"], "Succeeded")
    (fact,) = _named(reading_of_lab, "gap-start")
    (pod,) = [pod for pod in reading_of_lab[2].truth["pods"] if pod["pod"] == "gap-start"]
    assert (fact.started, fact.ended) == (pod["scheduled"], pod["ended"])


def test_hours_without_scrapes_are_told_with_what_they_covered(reading_of_lab: LabReading) -> None:
    first, second = reading_of_lab[1].incomplete
    day = 24 * HOUR
    assert first == IncompleteHour(reading_of_lab[2].base + day + 6 * HOUR, 3600, 3180)
    assert second == IncompleteHour(reading_of_lab[2].base + 2 * day + 15 * HOUR, 3600, 1200)
    assert (
        "kube-state-metrics was not seen from 2025-03-01 15:05 UTC for 2400 s: these hours are incomplete."
        in (reading_of_lab[1].notes)
    )


def test_pods_that_wait_or_have_ended_or_are_told_twice_are_not_billed(reading_of_lab: LabReading) -> None:
    facts, _, lab = reading_of_lab
    assert _named(reading_of_lab, "never-scheduled") == []
    (blink,) = _named(reading_of_lab, "blink-kept")  # its object was kept for 15 minutes
    assert blink.ended is not None
    assert blink.started is not None
    assert blink.ended - blink.started == 10
    doubled = range(lab.base + 36 * HOUR, lab.base + 38 * HOUR)
    inside = [
        pod
        for pod in billable(lab.truth)
        if pod["scheduled"] in doubled and (pod["ended"] or lab.end) in doubled
    ]
    assert inside
    for pod in inside:
        assert facts[pod["uid"]].gpus == pod["gpus"]


def test_one_name_with_three_uids_is_three_runs(reading_of_lab: LabReading) -> None:
    runs = _named(reading_of_lab, "notebook-0")
    assert len(runs) == 3
    for before, after in pairwise(runs):
        assert before.ended is not None
        assert after.started is not None
        assert 12 <= after.started - before.ended <= 42
    assert {run.job_id for run in runs} == {"vision/notebook-0"}


def test_parts_of_gpus_are_exact(reading_of_lab: LabReading) -> None:
    facts, _, lab = reading_of_lab
    shapes = {
        "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb": ("a100-sxm4-40gb", "1g.5gb", (1, 7)),
        "NVIDIA-A100-SXM4-40GB": ("a100-sxm4-40gb", "2g.10gb", (2, 7)),
        "NVIDIA-L4": ("l4", "", (1, 4)),
        "NVIDIA-H100-80GB-HBM3": ("h100-80gb-hbm3", "", (1, 1)),
    }
    met = set()
    for pod in billable(lab.truth):
        if pod["uid"] in facts and not pod["fraction"]:
            fact = facts[pod["uid"]]
            assert (fact.gpu_model, fact.mig_profile, fact.gpu_share) == shapes[pod["product"]]
            assert fact.gpus == pod["gpus"]
            assert fact.node_list == pod["node"]
            met.add(pod["product"])
    assert met == set(shapes)


def test_halves_are_billed_to_their_tenant_and_the_reservation_to_nobody(reading_of_lab: LabReading) -> None:
    assert not [fact for fact in reading_of_lab[0].values() if fact.account == "kai-resource-reservation"]
    for name in ("half-0", "half-1"):
        (half,) = _named(reading_of_lab, name)
        assert (half.gpus, half.gpu_share, half.gpu_model) == (1, (1, 2), "h100-80gb-hbm3")
        assert (half.account, half.queue, half.requested) == ("nlp", "nlp-q", "gpu-fraction=0.5")
        assert half.ended is not None
        assert half.started is not None
        assert 7170 <= half.ended - half.started <= 7200


def test_nodes_are_told_in_whole_gpus_and_those_that_are_gone_are_not(reading_of_lab: LabReading) -> None:
    assert reading_of_lab[1].nodes == [
        NodeSeen(name="a100-1", gpu_model="a100-sxm4-40gb", gpus=8, state=NodeState.UP),
        NodeSeen(name="h100-1", gpu_model="h100-80gb-hbm3", gpus=8, state=NodeState.UP),
        NodeSeen(name="h100-2", gpu_model="h100-80gb-hbm3", gpus=8, state=NodeState.UP),
        NodeSeen(name="ts-1", gpu_model="l4", gpus=2, state=NodeState.UP),
    ]
    lab = reading_of_lab[2]
    _, source = read(lab.url, lab.base + 50 * HOUR, lab.base + 51 * HOUR)
    assert source.reading.nodes is not None
    assert (
        NodeSeen(name="a100-2", gpu_model="a100-sxm4-40gb", gpus=4, state=NodeState.UP)
        in source.reading.nodes
    )


def test_hour_by_hour_at_random_or_at_once_and_again_it_is_the_same(reading_of_lab: LabReading) -> None:
    facts, _, lab = reading_of_lab
    hours = [(begin, begin + HOUR) for begin in range(lab.base, lab.end, HOUR)]
    for name, windows in (("in order", hours), ("at random", random.Random(7).sample(hours, len(hours)))):
        ledger = Merged()
        source = connector(lab.url)
        for since, until in windows:
            ledger.take(source.usage(since=since, until=until, open_keys=ledger.open_keys))
        assert {uid_of(fact): fact for fact in ledger.facts.values()} == facts, name
        revisions = ledger.revisions
        ledger.take(source.usage(since=lab.base, until=lab.end, open_keys=ledger.open_keys))
        assert ledger.revisions == revisions, name
        assert {uid_of(fact): fact for fact in ledger.facts.values()} == facts, name


def test_a_pass_says_how_far_it_proves_and_no_further(pushed_lab: Lab) -> None:
    lab = pushed_lab
    _, source = read(lab.url, lab.base + 30 * HOUR, lab.base + 31 * HOUR)
    assert source.reading.complete_through == lab.base + 31 * HOUR
    (down,) = lab.truth["server_down"]
    with present(lab.url, down[0] + 1500) as url:  # Prometheus gets no samples any more
        _, source = read(url, down[0] - HOUR, down[0] + 900)
    assert source.reading.complete_through is not None
    assert down[0] - 90 <= source.reading.complete_through <= down[0]
    _, source = read(lab.url, down[0] - HOUR, down[0] + 900)  # later, when it does again
    assert source.reading.complete_through == down[0] + 900
    _, source = read(lab.url, lab.end - HOUR, lab.end + 40 * HOUR)
    assert source.reading.complete_through is not None
    assert lab.end - 90 <= source.reading.complete_through <= lab.end


def test_while_kube_state_metrics_is_down_no_pod_has_ended(pushed_lab: Lab) -> None:
    (down,) = pushed_lab.truth["server_down"]
    with present(pushed_lab.url, down[0] + 2100) as url:
        facts, _ = read(url, down[0] - HOUR, down[0] + 1500)
    truth = {pod["uid"]: pod for pod in billable(pushed_lab.truth)}
    running = [fact for fact in facts if fact.ended is None]
    assert running
    assert {"gap-end-deleted", "gap-end-kept"} <= {fact.name for fact in running}
    for fact in facts:
        ended = truth[uid_of(fact)]["ended"] or pushed_lab.end
        assert until_of(fact) <= min(ended, down[0]) + (0 if fact.ended else 30)


def test_a_window_inside_an_outage_that_is_over_is_passed(pushed_lab: Lab) -> None:
    (down,) = pushed_lab.truth["server_down"]
    facts, source = read(pushed_lab.url, down[0] + 300, down[0] + 1500)
    assert source.reading.complete_through == down[0] + 1500
    assert [(hour.read, hour.covered) for hour in source.reading.incomplete] == [(1200, 0)]
    running = {fact.name for fact in facts if fact.ended is None}
    assert "pretrain-0" in running  # it stood before and after
    assert "gap-start" in {fact.name for fact in facts}


def test_a_time_before_the_first_sample_is_passed_as_a_hole(pushed_lab: Lab) -> None:
    lab = pushed_lab
    with present(lab.url, lab.base + 30 * HOUR) as url:
        facts, source = read(url, lab.base - 30 * 24 * HOUR, lab.base - 20 * 24 * HOUR)
    assert facts == []
    assert source.reading.complete_through == lab.base - 20 * 24 * HOUR
    assert source.reading.notes == [
        "kube-state-metrics was not seen from 2025-01-28 00:00 UTC for 864000 s: these hours are incomplete."
    ]


def test_an_open_run_is_given_from_wherever_it_lies_or_is_missing(pushed_lab: Lab) -> None:
    lab = pushed_lab
    truth = {pod["pod"]: pod for pod in lab.truth["pods"]}
    pod = truth["gap-end-deleted"]
    key, unknown = (
        f"{pod['uid']}/main/nvidia_com_gpu",
        "9b2e1c5e-0000-4000-8000-000000000000/main/nvidia_com_gpu",
    )
    facts, source = read(lab.url, lab.end - HOUR, lab.end, open_keys=[key, unknown])
    (fact,) = [fact for fact in facts if fact.source_key == key]
    assert (fact.started, fact.state) == (pod["scheduled"], "Unknown (estimated end)")
    assert fact.ended is not None
    assert pod["ended"] - 930 <= fact.ended <= pod["ended"]
    assert source.reading.missing == [unknown]


@pytest.mark.parametrize(
    ("account", "expected"),
    [
        (
            Attribution(source=AccountFrom.NAMESPACE_LABEL, label="label_billing_tenant"),
            {"acme", "beta", "gamma"},
        ),
        (KUEUE, {"", "bio", "nlp", "vision"}),
    ],
)
def test_an_account_is_a_label_where_the_operator_says_so(
    pushed_lab: Lab,
    account: Attribution,
    expected: set[str],
) -> None:
    facts, source = read(pushed_lab.url, pushed_lab.base, pushed_lab.end, account=account)
    assert {fact.account for fact in facts} == expected
    queues: dict[str, Any] = {pod["uid"]: pod["queue"] for pod in pushed_lab.truth["pods"]}
    for fact in facts:
        assert fact.queue == (queues[uid_of(fact)] or "/").partition("/")[2]
    without = [note for note in source.reading.notes if 'went to the account ""' in note]
    assert bool(without) == ("" in expected)


def test_a_matcher_stands_in_every_selector(pushed_lab: Lab) -> None:
    lab = pushed_lab
    window = lab.base + 30 * HOUR, lab.base + 33 * HOUR
    without, _ = read(lab.url, *window)
    within, source = read(lab.url, *window, matcher='job="kube-state-metrics"')
    assert within == without
    assert without
    assert source.reading.nodes


def test_a_pass_over_nothing_but_a_hole_says_nothing_of_open_runs(pushed_lab: Lab) -> None:
    lab = pushed_lab
    begin, end = lab.base - 10 * 24 * HOUR, lab.base - 9 * 24 * HOUR  # before its first sample
    with present(lab.url, lab.base + 3 * HOUR) as url:
        facts, source = read(url, begin, end, open_keys=["held/main/nvidia_com_gpu"])
    assert facts == []
    assert source.reading.complete_through == end
    assert (source.reading.missing, source.reading.unasked) == ([], ["held/main/nvidia_com_gpu"])
