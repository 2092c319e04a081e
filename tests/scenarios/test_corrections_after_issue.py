"""What becomes known after the invoice is on the next one, for the month in which it was used."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import pytest

from billing.documents import line_jobs
from billing.models import Invoice, InvoiceDocument
from portal.core.outbox import outbox
from portal.core.tenants.models import Tenant
from tests.builders import a_cluster, a_job, a_plan, a_seller, a_tenant, ingest
from tests.stories import closed, hours, invoice_of, lines_of, printed, prove, total

pytestmark = pytest.mark.django_db

APRIL: dict[str, Any] = {"started": "2026-04-02 10:00", "ended": "2026-04-02 20:00"}


@pytest.fixture
def vision() -> Tenant:
    """Billed 4.00 for March; everything is read through August."""
    cluster = a_cluster(complete_through="2026-09-01")
    a_seller()
    tenant = a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    ingest(cluster, a_job(job_id="7", source_key="7@1", ended="2026-03-02 12:00"))
    assert closed("2026-03", tenant).total.text == "4.00"  # type: ignore[union-attr]
    return tenant


def test_case_025_late_usage_is_a_line_with_its_own_service_month_and_the_old_invoice_stays(
    vision: Tenant,
) -> None:
    outbox.drain()
    march = invoice_of(vision, "2026-03")
    before = Invoice.objects.filter(pk=march.pk).values().get(), list(march.lines.order_by("pk").values())
    document = InvoiceDocument.objects.get(invoice=march)

    ingest(a_cluster(), a_job(started="2026-03-30 10:00", ended="2026-03-30 13:00"), a_job(**APRIL))

    assert prove()["pending"] == hours(13)
    assert closed("2026-04", vision).total.text == "26.00"  # type: ignore[union-attr]
    assert printed(invoice_of(vision, "2026-04")) == [
        ("2026-04", "vision", "10", "20.00"),
        ("2026-03", "vision", "3", "6.00"),
    ]
    assert [line.correction for line in lines_of(invoice_of(vision, "2026-04"))] == [False, True]
    outbox.drain()
    after = Invoice.objects.filter(pk=march.pk).values().get(), list(march.lines.order_by("pk").values())
    assert after == before
    stored = InvoiceDocument.objects.get(invoice=march)
    assert bytes(stored.pdf) == bytes(document.pdf)
    assert sha256(bytes(stored.pdf)).hexdigest() == document.sha256
    assert prove()["pending"] == 0


def test_a_credit_note_keeps_the_language_of_the_invoice_that_it_corrects(vision: Tenant) -> None:
    vision.language, vision.corrections = "de", "credit-note"
    vision.save()
    ingest(a_cluster(), a_job(source_key="7@1", ended="2026-03-02 10:30"), a_job(**APRIL))
    closed("2026-04", vision)
    march = invoice_of(vision, "2026-03")
    note = Invoice.objects.get(original=march)
    assert (note.buyer["language"], note.reason) == (
        "en",
        "The usage of this invoice was corrected after it was issued.",
    )
    assert [line.description for line in lines_of(note)] == [line.description for line in lines_of(march)]
    assert lines_of(invoice_of(vision, "2026-04"))[0].description == "GPU-Zeit"


def test_a_corrected_job_is_taken_off_the_next_invoice(vision: Tenant) -> None:
    ingest(a_cluster(), a_job(source_key="7@1", ended="2026-03-02 10:30"), a_job(**APRIL))

    closed("2026-04", vision)

    assert printed(invoice_of(vision, "2026-04")) == [
        ("2026-04", "vision", "10", "20.00"),
        ("2026-03", "vision", "-3/2", "-3.00"),
    ]
    assert total(invoice_of(vision, "2026-04")) == "17.00"
    assert prove()["billed"] == 1800 + hours(10)


def test_each_line_opens_to_the_jobs_that_make_it_up(vision: Tenant) -> None:
    ingest(
        a_cluster(), a_job(job_id="7", source_key="7@1", ended="2026-03-02 10:30"), a_job(job_id="8", **APRIL)
    )
    closed("2026-04", vision)

    for invoice in Invoice.objects.all():
        for line in lines_of(invoice):
            jobs = list(line_jobs.jobs_of(line))
            assert sum(job.resource_seconds for job in jobs) * line.seconds_den == line.seconds_num
    reversal, left = line_jobs.jobs_of(lines_of(invoice_of(vision, "2026-04"))[1])
    assert [(job.job_id, job.units) for job in (reversal, left)] in (
        [("7", -7200), ("7", 1800)],
        [("7", 1800), ("7", -7200)],
    )


def test_a_month_of_credit_alone_is_carried_forward_without_a_number_until_charges_exceed_it(
    vision: Tenant,
) -> None:
    ingest(
        a_cluster(),
        a_job(source_key="7@1", ended="2026-03-02 10:30"),
        a_job(**(APRIL | {"ended": "2026-04-02 11:00"})),
    )

    carried = closed("2026-04", vision)  # 2.00 − 3.00

    assert (carried.outcome, carried.number) == ("carried forward", "")
    assert carried.reason == (
        "Corrections of earlier periods exceed this period's charges by 1.00 USD; "
        "they go on invoices here, so the next invoice takes the difference up."
    )
    assert Invoice.objects.count() == 1
    prove()

    ingest(a_cluster(), a_job(started="2026-05-02 10:00", ended="2026-05-02 12:00"))
    assert closed("2026-05", vision).number == "INV-2026-0002"
    assert printed(invoice_of(vision, "2026-05")) == [
        ("2026-05", "vision", "2", "4.00"),
        ("2026-03", "vision", "-3/2", "-3.00"),
        ("2026-04", "vision", "1", "2.00"),
    ]
    assert prove()["pending"] == 0


def test_usage_known_before_a_late_correction_is_billed_although_its_month_was_carried_forward() -> None:
    """April was imported before March was corrected and closed, and closes on a credit of March."""
    cluster = a_cluster(complete_through="2026-09-01")
    vision = a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    ingest(cluster, a_job(started="2026-04-02 10:00", ended="2026-04-02 11:00"))
    ingest(cluster, a_job(source_key="7@1", ended="2026-03-02 20:00"))
    assert closed("2026-03", vision).total.text == "20.00"  # type: ignore[union-attr]
    ingest(cluster, a_job(source_key="7@1", ended="2026-03-02 15:00"))
    assert closed("2026-04", vision).outcome == "carried forward"  # 2.00 − 10.00
    prove()

    ingest(cluster, a_job(started="2026-05-02 10:00", ended="2026-05-02 20:00"))
    closed("2026-05", vision)

    assert printed(invoice_of(vision, "2026-05")) == [
        ("2026-05", "vision", "10", "20.00"),
        ("2026-03", "vision", "-5", "-10.00"),
        ("2026-04", "vision", "1", "2.00"),
    ]
    assert prove()["pending"] == 0


def test_late_usage_of_a_month_that_had_nothing_to_bill_is_billed_by_the_next(vision: Tenant) -> None:
    assert closed("2026-04", vision).outcome == "nothing to bill"
    ingest(a_cluster(), a_job(**APRIL), a_job(started="2026-05-02 10:00", ended="2026-05-02 11:00"))
    assert closed("2026-05", vision).outcome == "issued"
    assert printed(invoice_of(vision, "2026-05")) == [
        ("2026-05", "vision", "1", "2.00"),
        ("2026-04", "vision", "10", "20.00"),
    ]
    assert closed("2026-04", vision).outcome == "nothing to bill"
    assert prove()["pending"] == 0
