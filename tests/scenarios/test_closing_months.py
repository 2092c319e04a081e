"""Op closes a month: what blocks it, what it leaves behind, and what a second close does."""

from __future__ import annotations

import pytest
from django.core.management import call_command

from billing.invoicing import month_close
from billing.models import BillingPeriod, CloseProof, Invoice, InvoiceDocument, InvoiceSeries
from portal.core.outbox import outbox
from portal.core.outbox.models import OutboxMessage
from portal.core.tenants.models import Project, Tenant
from tests import sharing
from tests.builders import LONG_AGO, a_cluster, a_job, a_plan, a_seller, a_tenant, at, ingest
from tests.stories import close, closed, hours, invoice_of, printed, prove, total

pytestmark = pytest.mark.django_db


def a_lab() -> Tenant:
    """Used one GPU-hour in March; the cluster is read through April."""
    cluster = a_cluster(complete_through="2026-05-01")
    tenant = a_tenant("vision-lab", plan=a_plan(), accounts=[(cluster, "vision")])
    ingest(cluster, a_job())
    return tenant


begun, vision = sharing.fixtures(a_lab, "vision")


def used_in_april() -> None:
    ingest(a_cluster(), a_job(started="2026-04-02 10:00", ended="2026-04-02 11:00"))


def test_an_invoice_says_who_owes_whom_what_by_when(vision: Tenant) -> None:
    a_seller(invoice_prefix="NC", vat_id="DE1", tax_name="USt")
    Tenant.objects.update(tax_rate=19, payment_terms_days=30, address="Sternwarte 1", purchase_order="PO-7")

    done = closed("2026-03", vision)

    assert (done.outcome, done.number, done.total.text) == ("issued", "NC-2026-0001", "2.38")  # type: ignore[union-attr]
    invoice = invoice_of(vision, "2026-03")
    assert (str(invoice.issued_on), str(invoice.due_on)) == ("2026-04-03", "2026-05-03")
    assert (invoice.subtotal, invoice.tax, invoice.total, invoice.tax_name) == (200, 38, 238, "USt")
    assert (invoice.seller["name"], invoice.seller["vat_id"]) == ("Northern Compute GmbH", "DE1")
    assert (invoice.buyer["address"], invoice.buyer["purchase_order"]) == ("Sternwarte 1", "PO-7")
    period = BillingPeriod.objects.get(start=at("2026-03-01"))
    assert period.closed_at == at("2026-04-03")
    assert CloseProof.objects.get().sums == {"gpu": {"charged": "3600", "waived": "0", "unpriced": "0"}}


def test_a_month_that_is_not_over_cannot_be_closed(vision: Tenant) -> None:
    blocked = closed("2026-03", vision, on="2026-03-31 23:59:59")

    assert blocked.outcome == "blocked"
    assert blocked.reason == "March 2026 runs until 2026-04-01 00:00 UTC; close it after that."
    assert closed("2026-03", vision, on="2026-04-01").outcome == "issued"


def test_a_month_waits_for_the_one_before_it(vision: Tenant) -> None:
    used_in_april()

    assert closed("2026-04", vision).reason == "March 2026 has usage and is not closed: close it first."
    closed("2026-03", vision)
    assert closed("2026-04", vision).outcome == "issued"


def test_months_that_are_closed_late_and_twice_are_made_once_in_order(vision: Tenant) -> None:
    used_in_april()
    ingest(a_cluster(), a_job(started="2026-05-02 10:00", ended="2026-05-02 11:00"), as_of="2026-06-01")

    for month in ("2026-03", "2026-04", "2026-05", "2026-03", "2026-04", "2026-05"):
        closed(month, vision, on="2026-06-15")

    assert list(Invoice.objects.order_by("number").values_list("number", "period_start")) == [
        ("INV-2026-0001", at("2026-03-01")),
        ("INV-2026-0002", at("2026-04-01")),
        ("INV-2026-0003", at("2026-05-01")),
    ]


def test_a_cluster_that_was_not_read_to_the_end_blocks_unless_op_gives_a_reason(vision: Tenant) -> None:
    used_in_april()
    closed("2026-03", vision)
    a_cluster("idle")  # nobody's: blocks nobody
    a_cluster().accounts.get(name="vision").cluster.__class__.objects.filter(name="gpu1").update(
        complete_through=at("2026-04-30 12:00")
    )

    blocked = closed("2026-04", vision)
    sentence = "April 2026 ends 2026-05-01 00:00 UTC, but gpu1 is complete through 2026-04-30 12:00 UTC."
    assert blocked.reason == f"{sentence} Import the rest, or give a reason with --accept-incomplete."

    assert closed("2026-04", vision, accept="slurmdbd was lost").outcome == "issued"
    terms = invoice_of(vision, "2026-04").terms
    assert terms == {"accepted_incomplete": "slurmdbd was lost", "incomplete": sentence}
    assert CloseProof.objects.latest("pk").accepted_incomplete == "slurmdbd was lost"


def test_case_010_a_second_close_is_a_no_op(vision: Tenant) -> None:
    first = closed("2026-03", vision)
    before = Invoice.objects.values().get()

    second = closed("2026-03", vision, on="2026-04-20", accept="again")

    assert (second.outcome, second.number, second.total) == ("already issued", first.number, first.total)
    assert Invoice.objects.values().get() == before
    assert OutboxMessage.objects.count() == 1


def test_case_024_late_usage_before_the_close_is_simply_in_it(vision: Tenant) -> None:
    close("2026-03", vision, preview=True)
    ingest(a_cluster(), a_job(started="2026-03-31 23:00", ended="2026-04-01 00:00"))

    assert closed("2026-03", vision).total.text == "4.00"  # type: ignore[union-attr]


def test_case_051_056_a_preview_and_a_month_without_use_take_no_number(vision: Tenant) -> None:
    a_tenant("idle-lab", plan=Tenant.objects.get().subscriptions.get().plan)

    previewed = close("2026-03", preview=True)

    assert [(one.tenant, one.outcome) for one in previewed] == [
        ("idle-lab", "nothing to bill"),
        ("vision-lab", "issued"),
    ]
    assert not Invoice.objects.exists()
    assert not InvoiceSeries.objects.exists()
    assert not CloseProof.objects.exists()
    assert not BillingPeriod.objects.filter(closed_at__isnull=False).exists()
    assert not OutboxMessage.objects.exists()

    assert [one.number for one in close("2026-03")] == ["", "INV-2026-0001"]
    used_in_april()
    close("2026-04", preview=True)
    assert [one.number for one in close("2026-04")] == ["", "INV-2026-0002"]


def test_a_month_at_a_price_of_nothing_is_an_invoice_of_nothing() -> None:
    cluster = a_cluster(complete_through="2026-05-01")
    free = a_tenant(plan=a_plan(prices=[("gpu-hour", {}, "0", LONG_AGO)]), accounts=[(cluster, "vision")])
    ingest(cluster, a_job())

    assert closed("2026-03", free).total.text == "0.00"  # type: ignore[union-attr]
    assert printed(invoice_of(free, "2026-03")) == [("2026-03", "vision", "1", "0.00")]


def test_case_091_one_tenants_trouble_does_not_stop_the_others(
    vision: Tenant, caplog: pytest.LogCaptureFixture
) -> None:
    plan = vision.subscriptions.get().plan
    accounts = {name: [(a_cluster(), name)] for name in ("audio", "robotics", "zoology")}
    a_tenant("audio-lab", accounts=accounts["audio"])  # no plan
    a_tenant("robotics-lab", plan=plan, accounts=accounts["robotics"])
    a_tenant("zoology-lab", plan=plan, accounts=accounts["zoology"])
    ingest(a_cluster(), *[a_job(account=name) for name in accounts])
    robotics = Project.objects.get(tenant__slug="robotics-lab")
    Project.objects.filter(pk=robotics.pk).update(tenant=vision)  # a row that cannot be

    results = close("2026-03", apart=True)
    Project.objects.filter(pk=robotics.pk).update(tenant=robotics.tenant_id)

    assert [(one.tenant, one.outcome, one.number) for one in results] == [
        ("audio-lab", "blocked", ""),
        ("robotics-lab", "failed", ""),
        ("vision-lab", "issued", "INV-2026-0001"),
        ("zoology-lab", "issued", "INV-2026-0002"),
    ]
    assert results[0].reason == (
        "No price covers 1.00 GPU-hours on a100: give the tenant a plan, or its plan a price, and close again."
    )
    assert results[1].reason == "KeyError: 'robotics'"
    assert _closed_apart(caplog) == [
        ("WARNING", ["audio-lab", "robotics-lab", "vision-lab", "zoology-lab"], True)
    ]
    Project.objects.filter(name="robotics").update(tenant=Tenant.objects.get(slug="robotics-lab"))
    assert prove()["billed"] == hours(2)


def _closed_apart(caplog: pytest.LogCaptureFixture) -> list[tuple[str, object, object]]:
    """Each time as (level, tenants, whether the cause is told)."""
    records = [(record.levelname, record.msg) for record in caplog.records]
    return [
        (level, event["tenants"], event["exc_info"])
        for level, event in records
        if isinstance(event, dict) and event["event"] == "closing apart"
    ]


def test_case_061_two_currencies_never_share_an_invoice(vision: Tenant) -> None:
    subscription = vision.subscriptions.get()
    subscription.until = at("2026-03-02 10:30")
    subscription.save()
    vision.subscriptions.create(plan=a_plan("euro", "EUR"), since=at("2026-03-02 10:30"))
    from billing.rating import engine

    engine.rate_tenants([vision])

    blocked = closed("2026-03", vision)
    assert blocked.outcome == "blocked"
    assert "priced in EUR and USD" in blocked.reason


def test_case_054_the_document_of_a_number_comes_later_if_its_making_was_killed(
    vision: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed("2026-03", vision)
    monkeypatch.setattr("billing.documents.pdf.render", lambda _: 1 / 0)
    assert outbox.drain() == 0
    assert not InvoiceDocument.objects.exists()
    assert "ZeroDivisionError" in OutboxMessage.objects.get().last_error
    monkeypatch.undo()

    OutboxMessage.objects.update(available_at=at("2026-04-03"))
    assert outbox.drain() == 1
    document = InvoiceDocument.objects.get()
    assert bytes(document.pdf).startswith(b"%PDF")
    assert (document.invoice.number, document.tenant) == ("INV-2026-0001", vision)
    assert closed("2026-03", vision).number == "INV-2026-0001"


def test_case_059_a_tenant_renamed_keeps_its_old_documents(vision: Tenant) -> None:
    closed("2026-03", vision)
    Tenant.objects.update(name="Vision GmbH", address="New Street", tax_rate=19, vat_id="DE9")
    outbox.drain()
    used_in_april()
    closed("2026-04", vision)

    march, april = invoice_of(vision, "2026-03"), invoice_of(vision, "2026-04")
    assert (march.buyer["name"], march.buyer["vat_id"], total(march)) == ("Vision Lab", "", "2.00")
    assert (april.buyer["name"], april.buyer["vat_id"], total(april)) == ("Vision GmbH", "DE9", "2.38")
    first = bytes(InvoiceDocument.objects.get(invoice=march).pdf)
    outbox.drain()
    month_close.close_month(tenants=[vision], year=2026, month=3, moment=at("2026-06-01"))
    assert bytes(InvoiceDocument.objects.get(invoice=march).pdf) == first


def test_case_050_a_new_plan_version_leaves_what_was_billed_by_the_old_one(vision: Tenant) -> None:
    closed("2026-03", vision)
    a_plan(prices=[("gpu-hour", {}, "9.00", LONG_AGO)], effective_from=at("2026-04-01").date())
    from billing.rating import engine

    engine.rate_tenants([vision])
    used_in_april()

    assert closed("2026-04", vision).total.text == "9.00"  # type: ignore[union-attr]
    assert total(invoice_of(vision, "2026-03")) == "2.00"
    prove()


def test_a_month_is_called_what_the_tenants_calendar_calls_it() -> None:
    cluster = a_cluster(complete_through="2026-05-01")
    tokyo = a_tenant(
        "tokyo", plan=a_plan(), timezone="Asia/Tokyo", anchor_day=15, accounts=[(cluster, "vision")]
    )
    ingest(cluster, a_job(started="2026-03-14 14:00", ended="2026-03-14 16:00"))

    assert closed("2026-02", tokyo, on="2026-05-01").total.text == "2.00"  # type: ignore[union-attr]
    blocked = closed("2026-03", tokyo, on="2026-04-14 14:59:59")
    assert blocked.reason == "15 Mar – 14 Apr 2026 runs until 2026-04-14 15:00 UTC; close it after that."
    assert closed("2026-03", tokyo, on="2026-05-01").total.text == "2.00"  # type: ignore[union-attr]


def test_no_migration_is_missing() -> None:
    call_command("makemigrations", "--check", "--dry-run", verbosity=0)
