"""What monitoring missed, counted anew or tells a second time: nobody is billed twice, nor for what was not there."""

from __future__ import annotations

from decimal import Decimal

import pytest

from billing.models import RatedJob
from clusters.models import UsageRecord, UtilisationHour
from tests.builders import a_cluster, a_job, a_plan, a_seller, a_tenant, busy, ingest
from tests.stories import closed, hours, invoice_of, printed, prove, seconds, total

pytestmark = pytest.mark.django_db


def test_an_end_that_a_hole_of_forty_minutes_hid_is_marked_and_corrected_once_it_is_known() -> None:
    """The pod went while nobody looked: it is billed to its last sample. Backfilled samples know its end."""
    a_seller()
    cluster = a_cluster()
    vision = a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    pod = {"source_key": "pod-1/gpu", "started": "2026-03-02 10:00"}
    ingest(
        cluster, a_job(**pod, ended="2026-03-02 12:00", state="Unknown (estimated end)"), as_of="2026-04-02"
    )
    closed("2026-03", vision)
    march = invoice_of(vision, "2026-03")
    assert printed(march) == [("2026-03", "vision", "2", "4.00")]
    assert RatedJob.objects.get().state == "Unknown (estimated end)"  # as the tenant reads it beside the line

    healed = a_job(**pod, ended="2026-03-02 12:30", state="Succeeded")
    for _ in range(2):
        ingest(cluster, healed, as_of="2026-05-02")
    closed("2026-04", vision)

    assert printed(invoice_of(vision, "2026-04")) == [("2026-03", "vision", "1/2", "1.00")]
    assert RatedJob.objects.get().state == "Succeeded"
    march.refresh_from_db()
    assert total(march) == "4.00"
    assert prove()["billed"] == hours(2) + 1800


def test_counters_and_series_that_begin_anew_make_no_use_below_nothing_and_none_that_was_not() -> None:
    cluster = a_cluster(complete_through="2026-06-01")
    vision = a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    pod = {"source_key": "pod-1/gpu", "started": "2026-03-02 10:00", "state": "Running"}
    ingest(
        cluster,
        a_job(**pod, ended=None, seen_until="2026-03-02 13:00"),
        busy("pod-1/gpu", "2026-03-02 10:00", "1800.5"),
    )

    # A restarted exporter: the run is seen for less than it was, and its counters fall and leap.
    ingest(
        cluster,
        a_job(**pod, ended=None, seen_until="2026-03-02 11:00"),
        busy("pod-1/gpu", "2026-03-02 10:00", "-1800.5"),
        busy("pod-1/gpu", "2026-03-02 11:00", "4294967295"),
    )

    assert seconds(vision) == hours(3)
    assert [(row.busy, row.covered) for row in UtilisationHour.objects.all()] == [(Decimal("1800.5"), 3600)]
    closed("2026-03", vision)
    assert printed(invoice_of(vision, "2026-03")) == [("2026-03", "vision", "3", "6.00")]
    prove()


def test_case_027_of_two_sources_for_one_gpu_second_the_scheduler_is_billed_and_the_other_is_evidence() -> (
    None
):
    """Slurm says what was held, DCGM how busy it was, also where it saw more hours than Slurm's job had."""
    cluster = a_cluster(complete_through="2026-06-01")
    vision = a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    ingest(cluster, a_job(source_key="7@1", gpus=2))
    closed("2026-03", vision)
    before = printed(invoice_of(vision, "2026-03"))

    ingest(cluster, busy("7@1", "2026-03-02 10:00", "7000", 7200), busy("7@1", "2026-03-02 11:00", "9", 7200))

    assert before == [("2026-03", "vision", "2", "4.00")]
    assert UsageRecord.objects.count() == 1
    assert seconds(vision) == hours(2)
    assert closed("2026-04", vision).outcome == "nothing to bill"
    assert prove()["allocated"] == hours(2)
