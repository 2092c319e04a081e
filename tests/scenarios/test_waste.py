"""What was held and not used: each second in one finding, in GPU-hours and money, with the jobs behind it."""

from __future__ import annotations

from fractions import Fraction

import pytest

from billing.reports import waste
from billing.reports.waste import Kind, Waste
from clusters.models import Cluster
from portal.core.tenants.models import Tenant
from portal.core.tenants.scope import acting_scope, tenant_scope
from tests.builders import LONG_AGO, a_cluster, a_job, a_plan, a_tenant, at, ingest
from tests.scenarios.reports import report, worked, written

pytestmark = pytest.mark.django_db

SINCE, UNTIL = (int(at(day).timestamp()) for day in ("2026-03-01", "2026-04-01"))
PRICES = [
    ("gpu-hour", {"gpu_model": [model]}, price, LONG_AGO)
    for model, price in (("a100-80gb", "2.21"), ("h100-80gb", "3.75"), ("l4", "0.81"))
]


def a_lab() -> tuple[Cluster, Tenant]:
    """Vision at the prices of worked example D, and six runs of which telemetry tells something different each."""
    cluster = a_cluster()
    lab = a_tenant("vision-lab", plan=a_plan(prices=PRICES), accounts=[(cluster, "vision")])
    times = {"started": "2026-03-02 10:00", "ended": "2026-03-02 14:00", "gpu_model": "a100-80gb"}
    ingest(
        cluster,
        a_job(job_id="notebook", **times),
        a_job(job_id="tail", gpus=2, **times),
        a_job(job_id="wide", gpus=8, **times),
        a_job(job_id="small", **{**times, "gpu_model": "h100-80gb"}),
        a_job(job_id="waits", **times),
        a_job(job_id="dark", **times),  # nothing is known of it
        a_job(job_id="short", **times, time_limit=20 * 3600),
        as_of="2026-04-20",
    )
    hours = {
        "notebook": ("0", "12", "0", "0"),  # below one per cent
        "tail": ("7200", "6000", "0", "0"),
        "wide": ("7200", "7200", "3600", "7200"),  # at most two of eight
        "small": ("1080", "720", "360", "1080"),  # at most 30 %
        "waits": ("3600", "0", "3600", "0"),  # an idle hour at the end is no long tail
        "short": ("3600", "3600", "3600", "3600"),
    }
    gpus = {"tail": 2, "wide": 8}
    for job, busy in hours.items():
        for hour, seconds in enumerate(busy):
            worked(job, f"2026-03-02 {10 + hour}:00", seconds, covered=3600 * gpus.get(job, 1))
    return cluster, lab


def figures(result: Waste) -> dict[str, tuple[str, str, int]]:
    """By kind, GPU-hours, dollars and jobs, in the order of the findings."""
    return {
        one.kind.value: (
            written(one.seconds / 3600),
            written(one.money["USD"]) if one.money else "",
            one.jobs,
        )
        for one in result.findings
    }


EXPECTED = {
    "too-many-gpus": ("24", "53.04", 1),  # 8 × 4 h × 6/8 × 2.21
    "too-large-model": ("4", "6.16", 1),  # 4 h × (3.75 − 2.21), the next lower price
    "zero-use": (
        written(4 - Fraction(12, 3600)),
        written((4 - Fraction(12, 3600)) * Fraction("2.21")),
        1,
    ),
    "idle-tail": ("4", "8.84", 1),  # 2 × 2 h × 2.21
    "idle-between": ("2", "4.42", 1),
    "time-limit": ("16", "", 1),
}


def test_each_covered_second_is_in_one_finding_and_what_is_unknown_in_none() -> None:
    cluster, lab = a_lab()
    result = waste.of_cluster(cluster, since=SINCE, until=UNTIL)
    assert figures(result) == EXPECTED
    assert list(figures(result)) == [
        "too-many-gpus", "idle-tail", "zero-use", "too-large-model", "idle-between", "time-limit",
    ]  # fmt: skip
    whole = report(cluster).seconds
    assert result.seconds == whole  # as the report has it
    assert result.seconds.covered / 3600 == 56
    idle = [
        one.seconds
        for one in result.findings
        if one.kind in {Kind.ZERO_USE, Kind.IDLE_TAIL, Kind.IDLE_BETWEEN}
    ]
    assert result.zero_seconds == sum(idle)
    assert sum(use.low for use in result.models.values()) + result.zero_seconds == whole.waste
    with acting_scope(lab):
        cheaper = waste.cheaper_models(lab)
    with tenant_scope(lab):
        own = waste.of_tenant(lab, since=SINCE, until=UNTIL, cheaper=cheaper)
    assert (figures(own), own.models, own.zero) == (figures(result), result.models, result.zero)


def test_a_finding_opens_to_its_jobs_and_another_tenant_sees_none_of_them() -> None:
    cluster, lab = a_lab()
    other = a_tenant("speech-lab", plan=a_plan("other"), accounts=[(cluster, "speech")])
    for kind, (hours, _, count) in EXPECTED.items():
        result = waste.of_cluster(cluster, since=SINCE, until=UNTIL, kind=Kind(kind), jobs=5)
        assert (len(result.jobs), written(result.jobs[0].seconds / 3600)) == (count, hours)
        with tenant_scope(lab):
            own = waste.of_tenant(
                lab, since=SINCE, until=UNTIL, cheaper=waste.cheaper_models(lab), kind=Kind(kind), jobs=5
            )
        if kind != "too-large-model":  # whose price no page of a tenant may read
            assert own.jobs == result.jobs
        with tenant_scope(other):
            assert (
                waste.of_tenant(lab, since=SINCE, until=UNTIL, cheaper={}, kind=Kind(kind), jobs=5).models
                == {}
            )


def test_a_month_has_730_hours_and_a_running_job_counts_as_far_as_it_was_seen() -> None:
    cluster = a_cluster()
    a_tenant("vision-lab", plan=a_plan(prices=PRICES), accounts=[(cluster, "vision")])
    running = {"started": "2026-03-02", "ended": None, "seen_until": "2026-03-02 10:00", "state": "RUNNING"}
    ingest(cluster, a_job(job_id="1", gpu_model="a100-80gb", **running))
    worked("1", "2026-03-02 09:00", "0")
    since, until = (int(at(day).timestamp()) for day in ("2026-03-02", "2026-03-03"))
    (finding,) = waste.of_cluster(cluster, since=since, until=until).findings
    assert (finding.kind, written(finding.money["USD"])) == (Kind.ZERO_USE, "2.21")
    assert written(finding.a_month(86_400)["USD"]) == written(Fraction("2.21") * 730 / 24)
