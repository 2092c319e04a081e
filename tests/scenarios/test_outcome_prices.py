"""What a run costs by how it ended, and by what it was asked for as: failed nodes, preemption, spot."""

from __future__ import annotations

from decimal import Decimal

import pytest

from billing.catalog import plans
from billing.catalog.plans import PlanError
from billing.models import Invoice
from billing.rules.meters import PerUnit
from clusters.models import Cluster
from portal.core.tenants.models import Corrections, Tenant
from tests.builders import LONG_AGO, a_cluster, a_job, a_plan, a_seller, ingest
from tests.configuring_terms import apply
from tests.scenarios.real import run
from tests.stories import closed, hours, invoice_of, lines_of, printed, prove, seconds, total

pytestmark = pytest.mark.django_db

SITE = """
[[cluster]]
name = "gpu1"
kind = "import"

[[plan]]
name = "standard"
currency = "USD"
charges = ["gpu"]
from = 2026-01-01
[[plan.price]]
meter = "gpu-hour"
where = { state = ["NODE_FAIL", "BOOT_FAIL"] }
unit_price = "0"
[[plan.price]]
meter = "gpu-hour"
where = { state = "PREEMPTED" }
unit_price = "1.00"
[[plan.price]]
meter = "gpu-hour"
where = { qos = "spot" }
unit_price = "0.70"
[[plan.price]]
meter = "gpu-hour"
where = { priority_class = "preemptible" }
unit_price = "0.80"
[[plan.price]]
meter = "gpu-hour"
where = { qos = "spot", state = "PREEMPTED" }
unit_price = "0.35"
[[plan.price]]
meter = "gpu-hour"
unit_price = "2.00"

[[tenant]]
slug = "vision-lab"
name = "Vision Lab"
plan = "standard"
plan_from = 2026-01-01
accounts = [{ cluster = "gpu1", account = "vision" }]
"""


@pytest.fixture
def gpu1() -> Cluster:
    a_seller()
    apply(SITE)
    return a_cluster("gpu1")


@pytest.fixture
def vision(gpu1: Cluster) -> Tenant:
    return Tenant.objects.get()


def test_node_failures_are_free_and_stand_on_the_invoice(gpu1: Cluster, vision: Tenant) -> None:
    fields = {"started": "2026-03-02 10:00", "ended": "2026-03-02 13:00"}
    ingest(gpu1, a_job(**fields, state="NODE_FAIL"), a_job(**fields, state="FAILED"), as_of="2026-06-01")

    closed("2026-03", vision)

    invoice = invoice_of(vision, "2026-03")
    assert [
        (line.description, *row[2:]) for line, row in zip(lines_of(invoice), printed(invoice), strict=True)
    ] == [
        ("GPU time, state BOOT_FAIL / NODE_FAIL", "3", "0.00"),
        ("GPU time", "3", "6.00"),
    ]
    assert seconds(vision) == hours(6)  # charged, at nothing: neither waived nor lost
    assert prove()["billed"] == hours(6)
    lines = run("explain_invoice", invoice.number)["lines"]
    assert lines[0]["price"]["where"] == "state=BOOT_FAIL,NODE_FAIL"


def test_each_run_of_a_requeued_job_has_its_own_outcome(gpu1: Cluster, vision: Tenant) -> None:
    ingest(
        gpu1,
        a_job(job_id="7", started="2026-03-02 10:00", ended="2026-03-02 12:00", state="NODE_FAIL"),
        a_job(job_id="7", started="2026-03-02 13:00", ended="2026-03-02 14:00", state="PREEMPTED"),
        a_job(job_id="7", started="2026-03-02 15:00", ended="2026-03-02 20:00", state="COMPLETED"),
        as_of="2026-06-01",
    )

    closed("2026-03", vision)

    assert sorted(row[2:] for row in printed(invoice_of(vision, "2026-03"))) == [
        ("1", "1.00"),
        ("2", "0.00"),
        ("5", "10.00"),
    ]
    prove()


@pytest.mark.parametrize(
    ("state", "april", "sum_of_both"),
    [("COMPLETED", "6.00", "10.00"), ("PREEMPTED", "1.00", "5.00"), ("NODE_FAIL", None, "0.00")],
)
def test_an_outcome_that_is_known_after_the_invoice_is_a_correction(
    gpu1: Cluster, vision: Tenant, state: str, april: str | None, sum_of_both: str
) -> None:
    """Two hours in March, billed as running; three in April."""
    fields = {"source_key": "7@1", "started": "2026-03-31 22:00"}
    ingest(
        gpu1, a_job(**fields, ended=None, seen_until="2026-04-01 00:00", state="RUNNING"), as_of="2026-04-02"
    )
    closed("2026-03", vision)
    march = invoice_of(vision, "2026-03")
    assert total(march) == "4.00"

    ingest(gpu1, a_job(**fields, ended="2026-04-01 03:00", state=state), as_of="2026-06-01")
    outcome = closed("2026-04", vision)

    if april is None:  # four dollars less than nothing wait for the next invoice
        assert outcome.outcome == "carried forward"
        ingest(gpu1, a_job(started="2026-05-02 10:00", ended="2026-05-02 15:00"), as_of="2026-07-01")
        assert closed("2026-05", vision).total.text == "6.00"  # type: ignore[union-attr]
        assert ("2026-03", "vision", "-2", "-4.00") in printed(invoice_of(vision, "2026-05"))
    else:
        assert outcome.total.text == april  # type: ignore[union-attr]
    billed = sum(invoice.total for invoice in Invoice.objects.filter(tenant=vision, state="issued"))
    assert billed == int(sum_of_both.replace(".", "")) + (1000 if april is None else 0)
    march.refresh_from_db()
    assert total(march) == "4.00"
    prove()


def test_a_node_failure_is_a_credit_note_where_the_seller_says_so(gpu1: Cluster, vision: Tenant) -> None:
    vision.corrections = Corrections.CREDIT_NOTE
    vision.save()
    fields = {"source_key": "7@1", "started": "2026-03-31 22:00"}
    ingest(
        gpu1, a_job(**fields, ended=None, seen_until="2026-04-01 00:00", state="RUNNING"), as_of="2026-04-02"
    )
    closed("2026-03", vision)

    ingest(gpu1, a_job(**fields, ended="2026-04-01 03:00", state="NODE_FAIL"), as_of="2026-06-01")
    closed("2026-04", vision)

    note = Invoice.objects.get(kind="credit-note")
    assert (total(note), note.original) == ("-4.00", invoice_of(vision, "2026-03"))
    prove()


def test_a_run_that_was_taken_for_lost_and_completed_after_all_is_billed_in_full(
    gpu1: Cluster, vision: Tenant
) -> None:
    """Slurm may write NODE_FAIL first and requeue, or mend the row: what it says last counts, once."""
    fields = {"source_key": "7@1", "started": "2026-03-02 10:00"}
    for state, ended in (
        ("NODE_FAIL", "11:00"),
        ("RUNNING", None),
        ("COMPLETED", "14:00"),
        ("COMPLETED", "14:00"),
    ):
        end = {"ended": f"2026-03-02 {ended}"} if ended else {"ended": None, "seen_until": "2026-03-02 12:00"}
        ingest(gpu1, a_job(**fields, **end, state=state), as_of="2026-06-01")

    closed("2026-03", vision)

    assert total(invoice_of(vision, "2026-03")) == "8.00"
    assert seconds(vision) == hours(4)
    prove()


def test_case_040_spot_slices_cost_their_exact_share(gpu1: Cluster, vision: Tenant) -> None:
    """Seven slices of 1/7 and one of 1/4, as spot: 5/4 of a GPU at 0.70; two preempted ones of 3/7 at 0.35."""
    slices = {"mig_profile": "1g.5gb", "gpu_share": (1, 7), "qos": "spot"}
    ingest(
        gpu1,
        *[a_job(**slices) for _ in range(7)],
        a_job(mig_profile="1g.10gb", gpu_share=(1, 4), qos="spot"),
        a_job(mig_profile="3g.20gb", gpu_share=(3, 7), gpus=2, qos="spot", state="PREEMPTED"),
        a_job(mig_profile="1g.5gb", gpu_share=(1, 7), priority_class="preemptible"),
        as_of="2026-06-01",
    )

    closed("2026-03", vision)

    assert sorted(row[2:] for row in printed(invoice_of(vision, "2026-03"))) == [
        ("1/7", "0.11"),
        ("5/4", "0.88"),
        ("6/7", "0.30"),
    ]
    assert prove()["billed"] * 28 == hours(28 + 7 + 24 + 4)


def test_a_pod_of_which_nobody_says_how_it_ended_has_no_price_of_a_state() -> None:
    version = a_plan(prices=[]).versions.get()
    for state in ("Unknown", "Unknown (estimated end)"):
        with pytest.raises(PlanError, match="No price can select the state Unknown"):
            plans.set_price(
                version=version,
                meter="gpu-hour",
                where={"state": [state]},
                model=PerUnit(Decimal(1)),
                valid_from=LONG_AGO,
            )
