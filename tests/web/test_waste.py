"""Worked examples D and E on the operator's page, and what Ann sees of GPUs that were held and not used."""

from __future__ import annotations

import pytest

from billing.models import EfficiencySnapshot, RatedJob
from billing.reports import efficiency_snapshots, snapshots
from clusters import capacity
from clusters.connectors.base import NodeSeen, NodeState
from clusters.models import UsageRecord, UtilisationHour
from portal.core.outbox import outbox
from tests import builders
from tests.scenarios.reports import METRIC, worked
from tests.scenarios.test_waste import a_lab
from tests.web.house import page, signed_in
from tests.web.test_overview import words
from tests.web.test_reports import ANNS, MARCH, OPS, cells

pytestmark = pytest.mark.django_db

QUARTER = "?from=2026-01-01&through=2026-03-31"
TEAMS = [("gpu-hour", {"gpu_model": [model]}, price, builders.LONG_AGO) for model, price in (
    ("a100-80gb", "2.21"), ("a100-40gb", "1.65"), ("h100-80gb", "3.75"), ("l4", "0.81"), ("v100", "2.00"),
)]  # fmt: skip


def a_cluster_at_40_percent() -> None:
    """100 nodes of 8 GPUs in the first quarter at $2.00: 1,728,000 GPU-hours, of which devices worked 691,200."""
    cluster = builders.a_cluster()
    builders.a_tenant("vision-lab", plan=builders.a_plan(), accounts=[(cluster, "vision")])
    nodes = [
        NodeSeen(
            name=f"n{number}", gpu_model="a100", gpus=8, state=NodeState.DOWN if number < 5 else NodeState.UP
        )
        for number in range(100)
    ]
    capacity.observe(cluster, nodes, builders.at("2026-01-01"))
    quarter = {"started": "2026-01-01", "ended": "2026-04-01"}
    builders.ingest(
        cluster,
        *(
            builders.a_job(job_id=name, gpus=gpus, **quarter)
            for name, gpus in (("busy", 300), ("zero", 100), ("low", 80), ("dark", 60))
        ),
        builders.a_job(
            job_id="waits", gpus=400, started=None, ended=None, submitted="2026-03-02", state="PENDING"
        ),
        as_of="2026-04-01",
    )
    start = int(builders.at("2026-01-01").timestamp())
    for name, share in (("busy", 1), ("zero", 0), ("low", 0.25)):
        run = UsageRecord.objects.get(job_id=name)
        UtilisationHour.objects.bulk_create(
            UtilisationHour(
                record=run,
                hour=start + 3600 * hour,
                busy=int(3600 * run.gpus * share),
                covered=3600 * run.gpus,
                source="device",
                metric=METRIC,
            )
            for hour in range(2160)
        )


def test_worked_example_e_the_identity_and_the_findings_of_a_cluster_at_40_percent() -> None:
    a_cluster_at_40_percent()
    op = builders.an_operator()
    text = words(page(op, OPS + QUARTER))
    for line in (
        "Capacity 1,728,000.00 100 % $3,456,000.00",
        "Down or drained 86,400.00 5 % $172,800.00",
        "Idle, no demand 316,800.00 18.3 % $633,600.00",
        "Idle while jobs waited 158,400.00 9.2 % $316,800.00",
        "Allocated 1,166,400.00 67.5 % $2,332,800.00",
        "Effective 691,200.00 40 % $1,382,400.00",
        "Zero utilization 216,000.00 12.5 % $432,000.00",
        "Low utilization 129,600.00 7.5 % $259,200.00",
        "Unknown 129,600.00 7.5 % $259,200.00",
        "Telemetry covers 88.9 % of the allocated GPU-hours.",
    ):
        assert line in text, line
    findings = [
        (
            "GPUs held and never used End idle notebooks, and ask for GPUs only where the code uses them. "
            "1 job 216,000.00 $432,000.00 $146,000.00"
        ),
        (
            "Idle while jobs waited Look for fragmentation, limits and priorities: these GPUs were free while jobs "
            "waited for their model. 1 job 158,400.00 $316,800.00 $107,066.67"
        ),
        (
            "More GPUs than needed Ask for fewer GPUs: even the busiest hour would have fit on fewer. "
            "1 job 129,600.00 $259,200.00 $87,600.00"
        ),
    ]
    places = [text.index(finding) for finding in findings]
    assert places == sorted(places)  # the most money a month first
    for kind, number in (("zero-use", "zero"), ("idle-while-waiting", "waits"), ("too-many-gpus", "low")):
        jobs = page(op, f"/operator/reports/waste/{kind}/{QUARTER}&cluster=gpu1")
        record = RatedJob.objects.get(job_id=number).record_id
        assert f'href="/t/vision-lab/jobs/{record}/">{number}<' in jobs
        assert jobs.count('data-label="Job"') == 1


def test_worked_example_d_the_monthly_report_of_a_team() -> None:
    cluster = builders.a_cluster()
    builders.a_tenant("ml", plan=builders.a_plan(prices=TEAMS), accounts=[(cluster, "vision")])
    start = {"started": "2026-03-02 10:00"}
    builders.ingest(
        cluster,
        *(
            builders.a_job(job_id=name, gpus=gpus, gpu_model=model, ended=ended, **start)
            for name, gpus, model, ended in (
                ("wide", 64, "v100", "2026-03-02 11:00"),
                ("node", 8, "v100", "2026-03-02 11:00"),
                ("long", 2, "a100-80gb", "2026-03-02 20:00"),
                ("fast", 1, "h100-80gb", "2026-03-02 14:00"),
                ("lean", 1, "l4", "2026-03-02 20:00"),
                ("least", 1, "a100-40gb", "2026-03-02 12:00"),
            )
        ),
        as_of="2026-04-20",
    )
    worked("wide", "2026-03-02 10:00", str(32 * 3600), covered=64 * 3600)
    for hour in range(10, 20):
        worked("lean", f"2026-03-02 {hour}:00", "3600")
    op = builders.an_operator()
    html = page(op, f"{OPS}{MARCH}&by=project&top=5")
    row = cells(html, "vision")
    assert (row[1], row[5], row[7], row[9]) == (
        "108.00",
        "56.8 %",
        "6",
        "$214.60",
    )  # 42 of 74 h, no mean of means
    assert (
        "Most expensive jobs of vision Job Name User GPU-hours Cost wide – ben 64.00 $128.00 long – ben 20.00 $44.20 "
        "node – ben 8.00 $16.00 fast – ben 4.00 $15.00 lean – ben 10.00 $8.10" in words(html)
    )
    assert "least" not in html
    assert "Most expensive jobs" not in page(op, f"{OPS}{MARCH}&by=project")


def test_ann_sees_what_she_held_and_did_not_use_and_opens_it_to_the_jobs() -> None:
    _cluster, lab = a_lab()
    ann, eve = builders.a_person("ann@vision.example", lab), builders.a_person("eve@speech.example")
    text = words(page(ann, ANNS + MARCH))
    for line in (
        "Allocated 60.00 100 % $138.76",  # 56 h at 2.21 and 4 at 3.75
        "Zero utilization 10.00 16.7 %",
        "Telemetry covers 93.3 % of the allocated GPU-hours. The rest is unknown, which is not idle.",
        (
            "More GPUs than needed Ask for fewer GPUs: even the busiest hour would have fit on fewer. "
            "1 job 24.00 $53.04 $52.04"
        ),  # × 730 ÷ 744
        (
            "Time limits far above use Ask for less time: it costs nothing, and shorter jobs start earlier. "
            "1 job 16.00 – –"
        ),
    ):
        assert line in text, line
    record = RatedJob.objects.get(job_id="small").record_id
    jobs = page(ann, f"{ANNS}waste/too-large-model/{MARCH}")
    assert f'href="/t/vision-lab/jobs/{record}/">small<' in jobs
    assert "4.00 $6.16" in words(jobs)
    assert "No job in this period" in page(ann, f"{ANNS}waste/idle-tail/?from=2026-02-01&through=2026-02-28")
    assert signed_in(ann).get(f"{ANNS}waste/none-such/").status_code == 404
    assert signed_in(ann).get(f"{ANNS}waste/idle-tail/?from=soon").status_code == 404
    assert signed_in(eve).get(f"{ANNS}waste/idle-tail/{MARCH}").status_code == 404
    assert signed_in(ann).get("/operator/reports/waste/idle-tail/").status_code == 404
    UtilisationHour.objects.all().delete()
    assert "Telemetry covers 0 % of the allocated GPU-hours." in words(page(ann, ANNS + MARCH))
    UsageRecord.objects.update(time_limit=None)
    assert "No telemetry in this period" in page(ann, ANNS + MARCH)


def test_a_cluster_that_is_no_longer_read_hides_nothing_of_what_others_held() -> None:
    _cluster, lab = a_lab()
    builders.own(lab, builders.a_cluster("old", complete_through="2026-02-01"), "vision")
    ann = builders.a_person("ann@vision.example", lab)
    text = words(page(ann, ANNS + MARCH))
    assert "Zero utilization 10.00 16.7 %" in text
    assert "1 job 24.00 $53.04 $52.04" in text
    assert "4.00 $6.16" in words(page(ann, f"{ANNS}waste/too-large-model/{MARCH}"))


def test_a_large_tenant_is_shown_a_snapshot_and_its_page_asks_until_a_worker_has_made_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(efficiency_snapshots, "LARGE", 0)
    _cluster, lab = a_lab()
    ann = builders.a_person("ann@vision.example", lab)
    jobs = f"{ANNS}waste/too-many-gpus/{MARCH}"
    for path in (ANNS + MARCH, jobs):
        html = page(ann, path)
        assert "Being computed" in html
        assert f'hx-get="{path.replace("&", "&amp;")}"' in html
        assert "Nothing found" not in html
        assert "No job in this period" not in html
    asks = {"HX-Request": "true"}
    answer = signed_in(ann).get(ANNS + MARCH, headers=asks)
    assert "HX-Refresh" not in answer.headers
    assert b"<html" not in answer.content
    outbox.drain()
    answer = signed_in(ann).get(ANNS + MARCH, headers=asks)
    assert answer.headers["HX-Refresh"] == "true"
    html = page(ann, ANNS + MARCH)
    assert "As of " in html
    assert "hx-trigger" not in html.partition('id="as-of"')[2].partition("</div>")[0]
    assert "Zero utilization 10.00 16.7 %" in words(html)
    assert "1 job 24.00 $53.04 $52.04" in words(html)
    assert "wide" in words(page(ann, jobs))
    assert "dark" in page(ann, f"{ANNS}{MARCH}&by=pod")


def test_an_operator_who_looks_at_a_large_tenant_writes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(efficiency_snapshots, "LARGE", 0)
    a_lab()
    client = signed_in(builders.an_operator())
    client.post("/operator/tenants/vision-lab/look/", {"reason": "ticket 4711"})
    html = client.get(ANNS + MARCH).content.decode()
    assert "Zero utilization 10.00 16.7 %" in words(html)
    assert not EfficiencySnapshot.objects.exists()


def test_op_is_shown_a_snapshot_of_a_large_cluster_and_the_page_asks_until_it_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    a_cluster_at_40_percent()
    monkeypatch.setattr(efficiency_snapshots, "LARGE", 0)
    op = builders.an_operator()
    waits = f"{OPS}waste/idle-while-waiting/{QUARTER}&cluster=gpu1"
    for path in (OPS + QUARTER, waits):
        html = page(op, path)
        assert "Being computed" in html
        assert "No job in this period" not in html
        assert "No GPU usage" not in html
    outbox.drain()
    text = words(page(op, OPS + QUARTER))
    assert "As of " in text
    for line in (
        "Capacity 1,728,000.00 100 % $3,456,000.00",
        "Idle while jobs waited 158,400.00 9.2 % $316,800.00",
        "Unknown 129,600.00 7.5 % $259,200.00",
    ):
        assert line in text, line
    html = page(op, waits)
    assert ">waits<" in html
    assert "hx-trigger" not in html.partition('id="as-of"')[2].partition("</div>")[0]
    wrong = words(page(op, f"{OPS}?from=2026-04-01&through=2026-03-31"))
    assert "The period ends before it begins." in wrong
    assert "Being computed" not in wrong


def test_figures_that_are_not_requested_yet_are_not_promised_in_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(efficiency_snapshots, "LARGE", 0)
    monkeypatch.setattr(snapshots, "HOURLY", 0)
    _cluster, lab = a_lab()
    for html in (
        page(builders.a_person("ann@vision.example", lab), ANNS + MARCH),
        page(builders.an_operator(), OPS + MARCH),
    ):
        assert "Computed later" in html
        assert "These follow within the hour" in html
        assert "in a minute" not in html
