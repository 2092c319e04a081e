"""A tenant's periods begin on another day: what is said per period is owed in proportion, and one close does both."""

from __future__ import annotations

import re
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest
from django.core.management import call_command

from billing.catalog import version_terms
from billing.invoicing import close_runs
from billing.models import ApprovalLimit, ApprovalMetric, BillingPeriod, CloseKind, InvoiceSeries
from billing.rating import engine
from portal.core.outbox import outbox
from portal.core.tenants.models import Tenant
from tests.builders import a_cluster, a_job, a_plan, a_tenant, at, ingest
from tests.stories import close, closed, lines_of, prove

pytestmark = pytest.mark.django_db


@pytest.fixture
def lab() -> Tenant:
    """Pays 28.00 a period. February is issued from the 3rd on, then its periods begin on the 20th."""
    plan = a_plan("lab")
    version_terms.set_fee(version=plan.versions.get(), name="Base fee", amount=Decimal(28))
    cluster = a_cluster(complete_through="2026-08-01")
    tenant = a_tenant(plan=plan, plan_from=date(2026, 2, 3), accounts=[(cluster, "vision")], anchor_day=3)
    ingest(cluster, a_job(started="2026-02-10 10:00", ended="2026-02-10 11:00"))
    assert closed("2026-02", tenant).total.text == "30.00"  # type: ignore[union-attr]
    Tenant.objects.update(anchor_day=20)
    tenant.refresh_from_db()
    engine.rate_tenants([tenant])
    outbox.drain()
    return tenant


def fees(tenant: Tenant) -> list[tuple[str, str]]:
    rows = []
    for invoice in tenant.invoices.order_by("pk"):
        rows += [(f"{line.service_period.start:%m-%d}", str(line.amount)) for line in lines_of(invoice)]
    return rows


def test_a_period_of_17_days_owes_17_of_28_parts_of_the_fee(lab: Tenant) -> None:
    outcome = closed("2026-03", lab, on="2026-03-21")
    assert outcome.total.text == "17.00"  # type: ignore[union-attr]
    assert (
        "20 Mar \N{EN DASH} 19 Apr 2026 begins in the same month and is open: close the month again"
        in outcome.note
    )
    assert fees(lab)[-1] == ("03-03", "1700")
    first, second = BillingPeriod.objects.order_by("start")[1:3]
    assert (first.whole_seconds, second.whole_seconds) == (28 * 86_400, None)
    prove()


def test_one_close_bills_both_periods_that_begin_in_the_month(lab: Tenant) -> None:
    outcome = closed("2026-03", lab, on="2026-04-21")
    totals = [document.total.text for document in outcome.related_documents]
    assert (outcome.total.text, totals) == ("28.00", ["17.00"])  # type: ignore[union-attr]
    assert "Two periods begin in this month; 20 Mar \N{EN DASH} 19 Apr 2026 is the second." in outcome.note
    assert fees(lab)[2:] == [("03-03", "1700"), ("03-20", "2800")]
    assert closed("2026-03", lab, on="2026-04-22").outcome == "already issued"
    assert closed("2026-04", lab, on="2026-05-21").total.text == "28.00"  # type: ignore[union-attr]
    prove()


def test_a_dry_run_previews_both_periods_and_keeps_neither(
    lab: Tenant, capsys: pytest.CaptureFixture[str]
) -> None:
    (outcome,) = close("2026-03", lab, on="2026-04-21", preview=True)
    totals = [document.total.text for document in outcome.related_documents]
    assert (outcome.total.text, totals) == ("28.00", ["17.00"])  # type: ignore[union-attr]
    assert outcome.change is not None
    assert (outcome.change.since, outcome.change.number) == ("3 Mar \N{EN DASH} 19 Mar 2026", "")
    assert lab.invoices.count() == 1
    assert InvoiceSeries.objects.get().last_number == 1

    for options, sentence in (
        ({"dry_run": True}, "would be issued $28.00"),
        ({}, "issued INV-2026-0003 $28.00"),
    ):
        capsys.readouterr()
        call_command("close_period", "2026-03", as_of="2026-04-21", **options)
        output = capsys.readouterr().out
        assert f"vision-lab: {sentence}" in output
        assert re.search(r"Invoice (INV-2026-0002 )?over \$17.00. Two periods begin in this month", output)
    assert fees(lab)[2:] == [("03-03", "1700"), ("03-20", "2800")]


@pytest.fixture
def moved_twice(lab: Tenant) -> Tenant:
    """A job of 5 March has made the period up to the 20th when the anchor becomes the 25th: three begin in March."""
    ingest(a_cluster(), a_job(source_key="9@1", started="2026-03-05 10:00", ended="2026-03-05 11:00"))
    Tenant.objects.update(anchor_day=25)
    lab.refresh_from_db()
    engine.rate_tenants([lab])
    outbox.drain()
    return lab


SECOND, THIRD = "20 Mar \N{EN DASH} 24 Mar 2026", "25 Mar \N{EN DASH} 24 Apr 2026"


def test_one_close_bills_all_three_periods_that_begin_in_the_month(moved_twice: Tenant) -> None:
    outcome = closed("2026-03", moved_twice, on="2026-04-26")
    totals = [document.total.text for document in outcome.related_documents]
    assert (outcome.total.text, totals) == ("28.00", ["19.00", "5.00"])  # type: ignore[union-attr]
    assert f"Three periods begin in this month; {SECOND}, {THIRD} follow." in outcome.note
    assert fees(moved_twice)[2:] == [("03-03", "200"), ("03-03", "1700"), ("03-20", "500"), ("03-25", "2800")]
    assert closed("2026-03", moved_twice, on="2026-04-27").outcome == "already issued"
    assert closed("2026-04", moved_twice, on="2026-05-26").total.text == "28.00"  # type: ignore[union-attr]
    prove()


def test_a_close_names_each_period_of_the_month_that_has_not_ended(moved_twice: Tenant) -> None:
    outcome = closed("2026-03", moved_twice, on="2026-03-21")
    assert outcome.total.text == "19.00"  # type: ignore[union-attr]
    for name in (SECOND, THIRD):
        assert f"{name} begins in the same month and is open: close the month again" in outcome.note
    outcome = closed("2026-03", moved_twice, on="2026-03-26")
    assert (outcome.number, outcome.total.text) == ("INV-2026-0003", "5.00")  # type: ignore[union-attr]
    assert f"{THIRD} begins in the same month and is open: close the month again" in outcome.note


def test_op_approves_each_period_of_the_month_as_it_waits(lab: Tenant) -> None:
    ApprovalLimit.objects.create(metric=ApprovalMetric.TOTAL, currency="USD", limit=10)
    for total, related_totals in (("17.00", []), ("28.00", ["17.00"]), ("28.00", [])):
        outcome = closed("2026-03", lab, on="2026-04-21")
        totals = [document.total.text for document in outcome.related_documents]
        assert (outcome.total.text, totals) == (total, related_totals)  # type: ignore[union-attr]
        if related_totals:
            assert outcome.outcome == "waiting for approval"
            assert "20 Mar \N{EN DASH} 19 Apr 2026 begins in the same month and is open" in outcome.note
        if lab.invoices.issued().count() < 3:
            call_command("approve_invoice", "vision-lab", "2026-03", why="as agreed")
    assert outcome.outcome == "issued"
    prove()


def test_what_waits_is_counted_though_another_period_of_the_month_is_issued(
    lab: Tenant, capsys: pytest.CaptureFixture[str]
) -> None:
    ApprovalLimit.objects.create(metric=ApprovalMetric.TOTAL, currency="USD", limit=20)
    run = close_runs.request_run(
        month="2026-03", kind=CloseKind.ISSUE, by="op", moment=at("2026-04-21"), accept_incomplete="read"
    )
    close_runs.perform_run(run.pk, clock=lambda: at("2026-04-21"))
    counts = [
        (count_outcome.outcome, count_outcome.tenants, count_outcome.total)
        for count_outcome in close_runs.count_outcomes(run)
    ]
    assert counts == [("waiting for approval", 1, 28_00), ("issued", 1, 17_00)]


@pytest.mark.parametrize(
    ("key", "before", "after"), [("anchor_day", "20", "5"), ("timezone", "UTC", "Asia/Tokyo")]
)
def test_apply_says_from_when_another_day_or_zone_holds(
    lab: Tenant, key: str, before: str, after: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ingest(a_cluster(), a_job(source_key="9@1", started="2026-04-25 10:00", ended="2026-04-25 11:00"))
    file = tmp_path / "clustertab.toml"
    value = after if key == "anchor_day" else f'"{after}"'
    file.write_text(f'[[tenant]]\nslug = "vision-lab"\n{key} = {value}\n')
    capsys.readouterr()
    call_command("apply", str(file))
    assert (
        f"tenant vision-lab: {key} {before} -> {after}, from 2026-05-20 on: "
        "periods that have begun or have usage stay as they are"
    ) in capsys.readouterr().out
