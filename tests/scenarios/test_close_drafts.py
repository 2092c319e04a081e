"""Op looks at an invoice before it is one: as it will be, and nothing is kept of the looking."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from pypdf import PdfReader

from billing.documents import build
from billing.documents.invoice import InvoiceDocument
from billing.documents.pdf import render
from billing.invoicing import draft_previews
from billing.invoicing.draft_previews import Drafts
from billing.models import ApprovalLimit, BillingPeriod, CloseProof, Invoice, InvoiceSeries
from portal.core.outbox.models import OutboxMessage
from portal.core.tenants.models import Tenant
from tests.builders import a_cluster, a_job, a_plan, a_seller, a_tenant, at, ingest
from tests.stories import close, invoice_of, prove

pytestmark = pytest.mark.django_db


@pytest.fixture
def lab() -> Tenant:
    """Two GPU-hours in March at 2.00, and 19 %."""
    a_seller(iban="DE89370400440532013000")
    cluster = a_cluster(complete_through="2026-05-01")
    lab = a_tenant(plan=a_plan(currency="EUR"), accounts=[(cluster, "vision")], tax_rate=19)
    ingest(cluster, a_job(source_key="1", started="2026-03-02 10:00", ended="2026-03-02 12:00"))
    return lab


def drafts(lab: Tenant, *, month: int = 3) -> Drafts[InvoiceDocument]:
    moment = at("2026-05-03")
    return draft_previews.read_drafts(
        tenant=lab,
        year=2026,
        month=month,
        moment=moment,
        read=lambda row: draft_previews.load_document(row, moment=moment),
    )


def test_a_draft_is_the_invoice_without_its_number(lab: Tenant) -> None:
    (draft,) = drafts(lab).documents
    close("2026-03", on="2026-05-03")
    issued = build.document_of(invoice_of(lab, "2026-03"))
    assert draft.draft
    assert draft.notes == (
        f"Draft of 2026-05-03: it has no number, and nothing is to be paid on it.\n{issued.notes}"
    )
    unnumbered = {"number": "Draft", "payment_reference": "", "payment_code": (), "notes": "", "draft": True}
    assert replace(draft, notes="") == replace(issued, **unnumbered)  # type: ignore[arg-type]  # its own fields


def test_nothing_is_kept_and_no_number_is_used_up(lab: Tenant) -> None:
    waiting = OutboxMessage.objects.count()
    drafts(lab)
    assert not Invoice.objects.exists()
    assert not InvoiceSeries.objects.exists()
    assert not CloseProof.objects.exists()
    assert not BillingPeriod.objects.exclude(closed_at=None).exists()
    assert OutboxMessage.objects.count() == waiting
    close("2026-03")
    assert invoice_of(lab, "2026-03").number == "INV-2026-0001"
    prove()


def test_the_pdf_says_on_each_page_that_it_is_a_draft(lab: Tenant) -> None:
    (draft,) = drafts(lab).documents
    long = replace(draft, lines=draft.lines * 80)
    for document, times in ((draft, 1), (long, 3)):
        texts = [page.extract_text() for page in PdfReader(io.BytesIO(render(document))).pages]
        assert len(texts) >= times
        assert all("DRAFT" in text for text in texts)
    issued = PdfReader(io.BytesIO(render(replace(draft, draft=False))))
    assert all("DRAFT" not in page.extract_text() for page in issued.pages)


def test_what_stands_beside_an_invoice_is_drafted_with_it(lab: Tenant) -> None:
    close("2026-03")
    Tenant.objects.update(corrections="credit-note")
    lab.refresh_from_db()
    cluster = a_cluster()
    ingest(
        cluster,
        a_job(source_key="1", started="2026-03-02 10:00", ended="2026-03-02 11:00"),
        a_job(source_key="2", started="2026-04-02 10:00", ended="2026-04-02 15:00"),
        as_of="2026-05-01",
    )
    documents = drafts(lab, month=4).documents
    assert [(document.kind, document.number, document.total) for document in documents] == [
        ("Invoice", "Draft", "€11.90"),
        ("Credit note", "Draft", "-€2.38"),
    ]
    assert documents[1].refers_to == (("Credits invoice", "INV-2026-0001"),)


def test_what_waits_for_approval_is_looked_at_before_it_is_approved(lab: Tenant) -> None:
    ApprovalLimit.objects.create(metric="total", currency="EUR", limit=1)
    for _ in range(2):  # not held yet, and held for approval by a close
        preview = drafts(lab)
        assert preview.closed.outcome == "waiting for approval"
        assert [document.total for document in preview.documents] == ["€4.76"]
        close("2026-03", on="2026-05-03")


def test_where_nothing_is_issued_it_is_said_why(lab: Tenant) -> None:
    assert drafts(lab, month=5).closed.reason.startswith("May 2026 runs until")
    close("2026-03")
    preview = drafts(lab)
    assert (preview.closed.outcome, preview.documents) == ("already issued", [])
