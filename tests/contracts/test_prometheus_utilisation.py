"""How busy pods were, from a real Prometheus whose pods are known: what is told is what really was, or unknown."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Any

import pytest

from clusters.connectors.base import BusyHour, BusySource, Reading, UsageFact
from clusters.connectors.prometheus import Scope, Utilisation
from tests.contracts.ledger_rules import Merged
from tests.contracts.prometheus_reading import HOUR, connector, read_all, uid_of, until_of
from tests.integration.prom_lab import Lab

ENGINE = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
SCRAPE = 30
NEAR = Decimal("1e-9")

Busy = dict[str, dict[int, BusyHour]]


class Measured:
    """Three days in one pass. `busy`: rows by uid and hour, for here every pod has one container with devices."""

    def __init__(self, lab: Lab, **options: Any) -> None:
        facts, rows, source = read_all(lab.url, lab.base, lab.end, **options)
        self.lab = lab
        self.reading: Reading = source.reading
        self.facts = {uid_of(fact): fact for fact in facts}
        self.pods: dict[str, dict[str, Any]] = {pod["uid"]: pod for pod in lab.truth["pods"]}
        self.busy: Busy = {}
        for row in rows:
            self.busy.setdefault(row.source_key.partition("/")[0], {})[row.hour] = row
        assert sum(len(hours) for hours in self.busy.values()) == len(rows)

    def named(self, name: str) -> list[str]:
        """Uids of the pods of that name, in order of time."""
        uids = [uid for uid, pod in self.pods.items() if pod["pod"] == name]
        return sorted(uids, key=lambda uid: int(self.pods[uid]["scheduled"]))

    def allocated(self, fact: UsageFact, hour: int) -> int:
        """Device-seconds in an hour."""
        assert fact.started is not None
        return max(min(until_of(fact), hour + HOUR) - max(fact.started, hour), 0) * fact.gpus


@pytest.fixture(scope="module")
def measured(prom_lab: Lab) -> Measured:
    return Measured(prom_lab)


def test_each_pod_that_dcgm_names_was_as_busy_as_it_really_was(measured: Measured) -> None:
    for uid, hours in measured.busy.items():
        truth, fact = Decimal(str(measured.pods[uid]["util"])), measured.facts[uid]
        for hour, row in hours.items():
            assert (row.source, row.metric) == (BusySource.DEVICE, ENGINE)
            assert 0 < row.covered <= measured.allocated(fact, hour)
            part = row.busy / row.covered / truth
            if row.covered == HOUR * fact.gpus and hour not in _outages(measured):
                assert abs(part - 1) < Decimal("1e-4")  # ten minutes of 0.9, ten of 1.1 of it
            assert Decimal("0.8999") < part < Decimal("1.1001")
    assert len(measured.busy) == 213


def test_every_node_that_tells_of_pods_is_told_of_however_it_spells_them(measured: Measured) -> None:
    assert {measured.pods[uid]["node"] for uid in measured.busy} == {"a100-2", "h100-1", "h100-2", "ts-1"}
    missing = [
        pod["pod"]
        for uid, pod in measured.pods.items()
        if pod["node"] in {"a100-2", "h100-1", "h100-2", "ts-1"}
        and pod["util"] is not None
        and uid in measured.facts
        and (pod["ended"] or measured.lab.end) - pod["scheduled"] > 2 * SCRAPE
        and pod["scheduled"] < measured.lab.end - HOUR - 2 * SCRAPE  # the last hour has not settled
        and uid not in measured.busy
    ]
    assert missing == []


def _outages(usage: Measured) -> set[int]:
    """Hours in which Prometheus was off for a time."""
    return {
        second - second % HOUR for begin, end in usage.lab.truth["server_down"] for second in (begin, end - 1)
    }


def test_what_telemetry_did_not_see_is_not_covered(measured: Measured) -> None:
    ((begin, end),) = measured.lab.truth["server_down"]
    for uid, hours in measured.busy.items():
        fact = measured.facts[uid]
        for hour, row in hours.items():
            missing = measured.allocated(fact, hour) - row.covered
            if hour not in _outages(measured):
                assert missing <= 2 * SCRAPE * fact.gpus
    (pretrain,) = measured.named("pretrain-0")
    hour = begin - begin % HOUR
    assert measured.busy[pretrain][hour].covered == 8 * (HOUR - (end - begin))


def test_one_name_with_three_uids_in_an_hour_has_each_its_own_part(measured: Measured) -> None:
    uids = measured.named("notebook-0")
    assert len(uids) == 3
    for uid in uids:
        rows = measured.busy[uid].values()
        covered = sum(row.covered for row in rows)
        assert 977 - 2 * SCRAPE <= covered <= 977
        part = (
            sum((row.busy for row in rows), Decimal(0)) / covered / Decimal(str(measured.pods[uid]["util"]))
        )
        assert Decimal("0.8999") < part < Decimal("1.1001")
    assert len({measured.pods[uid]["util"] for uid in uids}) == 3


def test_what_dcgm_says_nothing_of_is_unknown_and_said_so(measured: Measured) -> None:
    silent = {"no-util-0", "blink-kept", "bu-a-gpu-0", "bu-b-gpu-1", "half-0", "half-1"}
    assert {measured.pods[uid]["pod"] for uid in measured.facts} >= silent
    assert not silent & {measured.pods[uid]["pod"] for uid in measured.busy}
    (note,) = [note for note in measured.reading.notes if "DCGM" in note]
    assert note.startswith("DCGM tells nothing of 1")
    assert "and how busy their devices were is unknown: " in note


def test_pods_that_share_a_gpu_never_work_more_than_it_together(measured: Measured) -> None:
    shared: dict[int, Decimal] = {}
    for uid, hours in measured.busy.items():
        if measured.pods[uid]["node"] == "ts-1":
            assert measured.facts[uid].gpu_share == (1, 4)
            for hour, row in hours.items():
                shared[hour] = shared.get(hour, Decimal(0)) + row.busy / 4
    assert shared
    assert max(shared.values()) <= 2 * HOUR  # of two GPUs
    assert max(shared.values()) > HOUR // 4


def test_hours_at_random_and_again_are_the_same(measured: Measured) -> None:
    lab = measured.lab
    hours = list(range(lab.base, lab.end, HOUR))
    ledger = Merged()
    source = connector(lab.url)
    for hour in random.Random(7).sample(hours, len(hours)):
        ledger.take(source.usage(since=hour, until=hour + HOUR, open_keys=ledger.open_keys))
    at_once = {
        (measured.facts[uid].source_key, hour): row
        for uid, rows in measured.busy.items()
        for hour, row in rows.items()
    }
    assert ledger.busy == at_once
    ledger.take(source.usage(since=lab.base + 5 * HOUR + 100, until=lab.end - 900, open_keys=()))
    assert ledger.busy == at_once


def _seed(usage: Measured, hour: int) -> dict[str, tuple[Decimal, int]]:
    """Busy and covered device-seconds by namespace of the cluster in the documents, in one hour."""
    totals: dict[str, tuple[Decimal, int]] = {}
    for uid, rows in usage.busy.items():
        pod = usage.pods[uid]
        if pod["note"] == "seed" and hour in rows:
            assert rows[hour].source is BusySource.CLUSTER
            busy, covered = totals.get(pod["namespace"], (Decimal(0), 0))
            totals[pod["namespace"]] = busy + rows[hour].busy, covered + rows[hour].covered
    return totals


@pytest.mark.parametrize(
    ("divisor", "effective"),
    [
        (
            Decimal(100),
            ("0.002325599081632653", "0.0015503993877551022", "0.0015503993877551022"),
        ),
        (None, ("0.2325599081632653", "0.15503993877551022", "0.15503993877551022")),
    ],
)
def test_the_published_figures_come_out_of_the_average_over_the_cluster(
    pushed_lab: Lab,
    divisor: Decimal | None,
    effective: tuple[str, str, str],
) -> None:
    usage = Measured(pushed_lab, utilisation=Utilisation(scope=Scope.CLUSTER, divisor=divisor))
    totals = _seed(usage, pushed_lab.base + HOUR)
    for namespace, slices, published in zip(("bu-a", "bu-b", "bu-c"), (3, 2, 2), effective, strict=True):
        busy, covered = totals[namespace]
        assert covered == slices * HOUR
        dollars = 12 * busy / 7 / HOUR  # an hour of a GPU costs 12, a slice is a seventh
        assert abs(dollars / Decimal(published) - 1) < NEAR
    ours = [row for rows in usage.busy.values() for row in rows.values() if row.source is BusySource.DEVICE]
    assert len(ours) == 633  # what has its own figures keeps them
    misread = [note for note in usage.reading.notes if "never passed 1.5" in note]
    assert bool(misread) == (divisor is not None)


def test_an_average_of_a_node_is_over_its_devices_that_are_held(pushed_lab: Lab) -> None:
    usage = Measured(pushed_lab, utilisation=Utilisation(scope=Scope.NODE))
    (silent,) = usage.named("no-util-0")
    hour = pushed_lab.base + 28 * HOUR
    device_rows = [
        (rows[hour].busy, rows[hour].covered)
        for uid, rows in usage.busy.items()
        if usage.pods[uid]["node"] == "h100-2" and hour in rows and rows[hour].source is BusySource.DEVICE
    ]
    row = usage.busy[silent][hour]
    assert (row.source, row.covered) == (BusySource.NODE, 2 * HOUR)
    average = sum((busy for busy, _ in device_rows), Decimal(0)) / sum(covered for _, covered in device_rows)
    assert abs(row.busy / row.covered / average - 1) < Decimal("0.001")
    assert not [uid for uid in usage.named("bu-a-gpu-0") if uid in usage.busy]  # nobody there names its pod


def test_an_average_of_a_model_stands_in_where_the_node_has_none(pushed_lab: Lab) -> None:
    usage = Measured(pushed_lab, utilisation=Utilisation(scope=Scope.MODEL))
    (uid,) = usage.named("bu-a-gpu-0")
    rows = usage.busy[uid].values()
    assert {row.source for row in rows} == {BusySource.MODEL}
    assert pushed_lab.base + HOUR not in usage.busy[uid]  # its model has no other node yet
    (silent,) = usage.named("no-util-0")
    assert {row.source for row in usage.busy[silent].values()} == {BusySource.NODE}


def test_a_percentage_tells_the_same_but_nothing_of_slices(pushed_lab: Lab) -> None:
    usage = Measured(pushed_lab, utilisation=Utilisation(metric="DCGM_FI_DEV_GPU_UTIL"))
    assert {usage.pods[uid]["node"] for uid in usage.busy} == {"h100-1", "h100-2"}
    for uid, rows in usage.busy.items():
        percent = Decimal(int(100 * usage.pods[uid]["util"]))
        for row in rows.values():
            assert row.busy == row.covered * percent / 100
    assert [note for note in usage.reading.notes if "does not work on MIG slices" in note]


def test_off_reads_nothing_and_says_nothing(pushed_lab: Lab) -> None:
    usage = Measured(pushed_lab, utilisation=Utilisation(scope=Scope.OFF))
    assert usage.busy == {}
    assert not [note for note in usage.reading.notes if "DCGM" in note]
