"""GPU memory and Slurm's billing weight: what they cost where a plan charges them, and nothing where none does."""

from __future__ import annotations

from pathlib import Path

import pytest

from billing.catalog import subscriptions
from billing.models import RatedUsage
from billing.proof import checks
from billing.rating import engine
from tests.builders import LONG_AGO, PriceRow, a_cluster, a_job, a_plan, a_tenant, at, ingest
from tests.scenarios.real import run
from tests.stories import closed, hours, invoice_of, printed, prove

pytestmark = pytest.mark.django_db

GIB_HOUR: PriceRow = ("gpu-memory-gib-hour", {}, "0.015", LONG_AGO)
ON_A6000: PriceRow = ("gpu-memory-gib-hour", {"queue": ["hf-a6000-1"]}, "0.01875", LONG_AGO)


def test_gpu_memory_is_charged_by_the_gib_hour() -> None:
    cluster = a_cluster(complete_through="2026-06-01")
    plan = a_plan(prices=[GIB_HOUR], charges=["gpu-memory"])
    vision = a_tenant(plan=plan, accounts=[(cluster, "vision")])
    ingest(cluster, a_job(gpu_memory_mib=81_920, started="2026-03-02 10:00", ended="2026-03-04 10:00"))

    closed("2026-03", vision)

    assert printed(invoice_of(vision, "2026-03")) == [("2026-03", "vision", "3840", "57.60")]
    prove()


def test_the_token_plan_of_gpu_memory_costs_a_quarter_more_on_the_better_host() -> None:
    """Worked example B as it is programmed: 0.015 a GiB-hour, × 1.25 on the A6000 host."""
    cluster = a_cluster(complete_through="2026-06-01")
    plan = a_plan(prices=[GIB_HOUR, ON_A6000], charges=["gpu-memory"])
    bob = a_tenant("bob", plan=plan, accounts=[(cluster, "bob")])
    ingest(
        cluster,
        a_job(account="bob", queue="hf-3090-1", gpus=0, gpu_memory_mib=8_192, ended="2026-03-02 12:00"),
        a_job(account="bob", queue="hf-a6000-1", gpus=0, gpu_memory_mib=40_960, ended="2026-03-02 13:00"),
    )

    total = closed("2026-03", bob).total

    # 16 GiB-hours × 0.015 = 0.24, and 120 GiB-hours × 0.01875 = 2.25
    assert total is not None
    assert total.text == "2.49"
    assert sorted(row[3] for row in printed(invoice_of(bob, "2026-03"))) == ["0.24", "2.25"]
    prove()


def test_slurms_billing_weight_comes_from_the_accounting_file(tmp_path: Path) -> None:
    a_cluster("farm")
    plan = a_plan(prices=[("billing-hour", {}, "0.01", LONG_AGO)], charges=["billing"])
    a_tenant("render-house", plan=plan, accounts=[(a_cluster("farm"), "render")])
    rows = tmp_path / "june.sacct"
    rows.write_text(
        "JobIDRaw|User|Account|Submit|Start|End|ElapsedRaw|State|AllocTRES\n"
        "1|ben|render|2026-06-01T00:00:00|2026-06-01T00:00:00|2026-06-01T02:30:00|9000|COMPLETED"
        "|billing=48,cpu=8,gres/gpu=1,mem=64G,node=1\n"
    )

    run("import_usage", "farm", rows, "--as-of", "2026-07-01")
    run("close_period", "2026-06")

    (invoice,) = run("show_invoices")["invoices"]
    (line,) = invoice["lines"]
    assert (line["meter"], line["quantity"], line["unit"], line["amount"]) == (
        "billing-hour",
        "120",
        "billing-hour",
        "1.20",
    )
    prove()


def test_a_plan_that_does_not_name_them_waives_them_without_a_row() -> None:
    cluster = a_cluster(complete_through="2026-06-01")
    vision = a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    ingest(cluster, a_job(billing=48, gpu_memory_mib=1024))

    closed("2026-03", vision)

    assert {row.resource for row in RatedUsage.objects.all()} == {"gpu"}
    sums = checks.prove().sums
    assert sums["gpu1", "billing"].parts["waived"] == hours(48)
    assert sums["gpu1", "gpu-memory"].parts["waived"] == hours(1)
    prove()


def test_a_later_plan_that_charges_them_waives_what_was_before_and_rates_the_rest() -> None:
    cluster = a_cluster(complete_through="2026-06-01")
    vision = a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    ingest(cluster, a_job(billing=10, started="2026-03-31 22:00", ended="2026-04-01 03:00"))
    weighed = a_plan("weighed", prices=[("billing-hour", {}, "0.50", LONG_AGO)], charges=["billing"])

    subscriptions.subscribe(tenant=vision, plan=weighed, since=at("2026-04-01"))
    engine.rate_tenants([vision])

    closed("2026-03", vision)
    assert closed("2026-04", vision).total.text == "15.00"  # type: ignore[union-attr]  # 30 billing-hours
    prove()
    parts = checks.prove().sums["gpu1", "billing"].parts
    assert (parts["waived"], parts["billed"]) == (hours(20), hours(30))


def test_a_tenant_without_a_plan_is_not_asked_for_prices_of_measures() -> None:
    cluster = a_cluster(complete_through="2026-06-01")
    vision = a_tenant(accounts=[(cluster, "vision")])
    ingest(cluster, a_job(billing=10))

    reason = closed("2026-03", vision).reason

    assert "GPU-hours" in reason
    assert "billing" not in reason
    prove()


def test_charged_gpu_memory_without_a_price_blocks_the_close() -> None:
    cluster = a_cluster(complete_through="2026-06-01")
    plan = a_plan(prices=[ON_A6000], charges=["gpu-memory"])
    vision = a_tenant(plan=plan, accounts=[(cluster, "vision")])
    ingest(cluster, a_job(queue="elsewhere", gpu_memory_mib=2048))

    assert "2.00 GiB-hours of GPU memory" in closed("2026-03", vision).reason


def test_another_weight_is_another_revision() -> None:
    cluster = a_cluster(complete_through="2026-06-01")
    plan = a_plan(prices=[("billing-hour", {}, "1.00", LONG_AGO)], charges=["billing"])
    vision = a_tenant(plan=plan, accounts=[(cluster, "vision")])
    job = a_job(billing=3)
    ingest(cluster, job)
    again = a_job(source_key=job.source_key, job_id=job.job_id, billing=5)

    assert (ingest(cluster, again).stored.revised, ingest(cluster, again).stored.revised) == (1, 0)
    assert closed("2026-03", vision).total.text == "5.00"  # type: ignore[union-attr]
    prove()
