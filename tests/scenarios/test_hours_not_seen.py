"""Kubernetes is watched from outside: what nobody watched is kept, shown, and no month closes over it unnoticed."""

from __future__ import annotations

from pathlib import Path

import pytest

from billing.models import CloseProof
from clusters.models import Cluster, ClusterKind, Connection, IncompleteHour
from portal.core.tenants.models import Tenant
from tests.builders import a_cluster, a_job, a_plan, a_seller, a_tenant, at
from tests.scenarios.configuring import Op
from tests.schedulers import Scheduler, a_connection
from tests.stories import closed, invoice_of

pytestmark = pytest.mark.django_db


def kube1(**fields: object) -> Cluster:
    """Read from 31 March on."""
    cluster = a_cluster("kube1", kind=ClusterKind.PROMETHEUS)
    a_connection(cluster, **{"first_usage_from": at("2026-03-31"), **fields})
    return cluster


def gap(since: str, until: str) -> tuple[int, int]:
    return int(at(since).timestamp()), int(at(until).timestamp())


def unseen() -> dict[str, int]:
    """By hour the percent of it that was seen."""
    return {
        f"{hour.begins // 3600 % 24:02d}:00": hour.seen for hour in IncompleteHour.objects.order_by("begins")
    }


@pytest.fixture
def lab() -> Tenant:
    """Ran one pod for an hour on 31 March."""
    a_seller()
    return a_tenant("vision-lab", plan=a_plan(), accounts=[(kube1(), "vision")])


def a_pod() -> object:
    return a_job(source_key="pod", started="2026-03-31 10:00", ended="2026-03-31 11:00")


def test_hours_that_were_not_seen_in_full_are_kept_until_a_later_pass_sees_them() -> None:
    prometheus = Scheduler(gaps=[gap("2026-03-31 10:30", "2026-03-31 12:06")])
    cluster = kube1()
    prometheus.pulled(cluster, "2026-03-31 20:00")
    assert unseen() == {"10:00": 50, "11:00": 0, "12:00": 90}

    prometheus.gaps = [gap("2026-03-31 11:30", "2026-03-31 12:00")]  # the backlog of remote write has come
    prometheus.pulled(cluster, "2026-03-31 20:30")  # which reads the last minutes only
    assert unseen() == {"10:00": 50, "11:00": 0, "12:00": 90}
    prometheus.pulled(cluster, "2026-03-31 21:00")  # and this the look-back
    assert unseen() == {"11:00": 50}


def test_what_prometheus_forgets_later_was_seen_all_the_same() -> None:
    prometheus = Scheduler(gaps=[gap("2026-03-31 10:00", "2026-03-31 10:30")])
    cluster = kube1()
    prometheus.pulled(cluster, "2026-03-31 20:00")
    prometheus.gaps = [gap("2026-03-31 09:00", "2026-03-31 11:00")]
    prometheus.pulled(cluster, "2026-03-31 22:00", since="2026-03-31 00:00", until="2026-03-31 20:00")
    assert unseen() == {"10:00": 50}


def test_parts_of_an_hour_are_told_with_the_worst_of_them_until_the_whole_is_read() -> None:
    prometheus = Scheduler(gaps=[gap("2026-03-31 20:05", "2026-03-31 20:15")])
    cluster = kube1()
    prometheus.pulled(cluster, "2026-03-31 20:00")
    for minute in ("20:10", "20:20", "20:30", "20:50"):
        prometheus.pulled(cluster, f"2026-03-31 {minute}")
    assert unseen() == {"20:00": 83}
    prometheus.pulled(cluster, "2026-03-31 21:10")
    assert unseen() == {"20:00": 83}


def test_a_month_with_an_hour_that_nobody_watched_is_closed_by_op_alone(lab: Tenant) -> None:
    gaps = [gap("2026-03-31 10:30", "2026-03-31 12:06"), gap("2026-04-01 01:00", "2026-04-01 02:00")]
    prometheus = Scheduler(rows=[a_pod()], gaps=gaps)  # type: ignore[list-item]
    prometheus.pulled(Cluster.objects.get(), "2026-04-01 03:00")

    blocked = closed("2026-03", lab)
    fact = (
        "kube1 was not watched all along in 2 hours, so pods that came and went there are not known: "
        "2026-03-31 10:00 UTC (50 % seen), 2026-03-31 11:00 UTC (0 % seen)."
    )
    assert blocked.outcome == "blocked"
    assert blocked.reason == (
        f"{fact} Read them with pull_usage kube1 --since 2026-03-31T10:00:00Z --until 2026-03-31T12:00:00Z once "
        "Prometheus has the samples, or give a reason with --accept-incomplete."
    )

    done = closed("2026-03", lab, accept="the Prometheus was down")
    assert (done.outcome, done.total.text if done.total else "") == ("issued", "2.00")
    terms = invoice_of(lab, "2026-03").terms
    assert terms == {"accepted_incomplete": "the Prometheus was down", "incomplete": fact}
    assert CloseProof.objects.get().accepted_incomplete == "the Prometheus was down"


def test_hours_that_are_read_again_and_seen_let_the_month_close(lab: Tenant) -> None:
    prometheus = Scheduler(rows=[a_pod()], gaps=[gap("2026-03-31 10:30", "2026-03-31 12:00")])  # type: ignore[list-item]
    kube = Cluster.objects.get()
    prometheus.pulled(kube, "2026-04-01 03:00")
    assert closed("2026-03", lab).outcome == "blocked"
    prometheus.gaps = []
    prometheus.pulled(kube, "2026-04-02 03:00", since="2026-03-31 10:00", until="2026-03-31 12:00")
    assert closed("2026-03", lab).outcome == "issued"


def test_how_much_of_an_hour_has_to_be_seen_is_the_connections(lab: Tenant) -> None:
    prometheus = Scheduler(rows=[a_pod()], gaps=[gap("2026-03-31 10:30", "2026-03-31 11:00")])  # type: ignore[list-item]
    prometheus.pulled(Cluster.objects.get(), "2026-04-01 03:00")
    assert closed("2026-03", lab).outcome == "blocked"
    Connection.objects.update(coverage_needed=50)
    assert closed("2026-03", lab).outcome == "issued"


def test_a_month_is_closed_once_its_last_days_were_read_again(lab: Tenant) -> None:
    prometheus = Scheduler(rows=[a_pod()])  # type: ignore[list-item]
    kube = Cluster.objects.get()
    prometheus.pulled(kube, "2026-03-31 23:30")  # reads the whole look-back, so the next one does not
    prometheus.pulled(kube, "2026-04-01 00:15")
    blocked = closed("2026-03", lab, on="2026-04-01 00:20")
    assert blocked.reason == (
        "What reached kube1's Prometheus late has not been read since the period's end. Close again after a full pass "
        "of it that begins after 2026-04-01 00:10 UTC: one comes each hour, or give a reason with --accept-incomplete."
    )
    prometheus.rows.append(a_job(source_key="late", started="2026-03-31 20:00", ended="2026-03-31 21:00"))
    prometheus.pulled(kube, "2026-04-01 00:30")
    done = closed("2026-03", lab, on="2026-04-01 00:35")
    assert (done.outcome, done.total.text if done.total else "") == ("issued", "4.00")


def test_of_a_connection_that_is_turned_off_no_pass_is_promised(lab: Tenant) -> None:
    prometheus = Scheduler(rows=[a_pod()])  # type: ignore[list-item]
    kube = Cluster.objects.get()
    prometheus.pulled(kube, "2026-03-31 23:30")
    prometheus.pulled(kube, "2026-04-01 00:15")
    Connection.objects.update(enabled=False)
    assert (
        "Close again after a full pass of it that begins after 2026-04-01 00:10 UTC: its connection is turned off, so "
        "ask for one with pull_usage kube1, or give a reason"
    ) in closed("2026-03", lab).reason
    prometheus.pulled(kube, "2026-04-02 10:00")
    assert closed("2026-03", lab).outcome == "issued"


def test_a_cluster_that_is_behind_is_told_as_that_alone(lab: Tenant) -> None:
    Scheduler(rows=[a_pod()]).pulled(Cluster.objects.get(), "2026-03-31 12:00")  # type: ignore[list-item]
    assert closed("2026-03", lab).reason == (
        "March 2026 ends 2026-04-01 00:00 UTC, but kube1 is complete through 2026-03-31 12:00 UTC. Import the rest, "
        "or give a reason with --accept-incomplete."
    )


def test_other_tenants_months_close() -> None:
    a_seller()
    kube = kube1()
    Scheduler(gaps=[gap("2026-03-31 10:00", "2026-03-31 12:00")]).pulled(kube, "2026-04-01 03:00")
    slurm = a_cluster("gpu1", complete_through="2026-04-02")
    elsewhere = a_tenant("robots", plan=a_plan(), accounts=[(slurm, "robots")])
    assert closed("2026-03", elsewhere).outcome == "nothing to bill"


def test_op_says_in_a_file_how_much_has_to_be_seen(tmp_path: Path) -> None:
    op = Op(tmp_path)
    config = '[[cluster]]\nname = "kube1"\nkind = "prometheus"\n[cluster.connection]\nurl = "http://127.0.0.1:9090"\n'
    op.applies(config)
    assert op.applies(config + "coverage_needed = 50\n") == [
        "connection of kube1: coverage_needed 90 % -> 50 %"
    ]
    refused = " ".join(op.is_refused(config + "coverage_needed = 101\n"))
    assert "coverage_needed" in refused
    slurm = config.replace("prometheus", "slurm").replace("kube1", "gpu1")
    assert "for clusters of the kind 'prometheus'" in " ".join(
        op.is_refused(slurm + "coverage_needed = 50\n")
    )
