"""Op opens each draft from the preview of a close: page and PDF, as they will look."""

from __future__ import annotations

import io
from functools import partial
from typing import TYPE_CHECKING

import pytest
from pypdf import PdfReader

from billing.models import ApprovalLimit, Invoice
from tests import builders, sharing, stories
from tests.web import previewing
from tests.web.browser import SKIP_REASON, THEMES, WIDTHS, Theme, chromium, visit
from tests.web.house import House, a_house, page, signed_in
from tests.web.previewing import opened
from tests.web.test_closing import MARCH, post, work
from tests.web.test_overview import words
from tests.web.test_reports_in_a_browser import sign_in

if TYPE_CHECKING:
    from pytest_django.live_server_helper import LiveServer

DRAFT = "/operator/close/2026-03/vision-lab/"


begun, house = sharing.fixtures(partial(a_house, close=False), "house")


@pytest.mark.django_db
def test_the_preview_leads_to_the_drafts(house: House) -> None:
    op = signed_in(house.op)
    assert f'href="{DRAFT}"' not in page(house.op, MARCH)
    post(op, act="preview")
    work()
    assert f'<a href="{DRAFT}">Open draft</a>' in page(house.op, MARCH)
    post(op, act="issue", confirmed="yes")
    work()
    assert f'href="{DRAFT}"' not in page(house.op, MARCH)
    assert "INV-2026-0002 is already issued." in opened(op, DRAFT).content.decode()


@pytest.mark.django_db
def test_a_draft_looks_as_the_invoice_will(house: House) -> None:
    op = signed_in(house.op)
    answer = opened(op, DRAFT)
    pdf, shown = f"{answer.request['PATH_INFO']}1/pdf", answer.content.decode()
    text = words(shown)
    assert "Vision Lab Draft What issuing March 2026 now would send. No number is used" in text
    assert "Total $13.00" in text
    assert "/t/vision-lab/" not in shown.partition("<main")[2]  # nothing of it can be opened yet
    assert f'href="{pdf}"' in shown
    answer = op.get(pdf)
    assert answer["Content-Disposition"] == 'inline; filename="draft-2026-03-vision-lab.pdf"'
    pdf_text = " ".join(PdfReader(io.BytesIO(answer.content)).pages[0].extract_text().split())
    assert "DRAFT" in pdf_text
    assert "$13.00" in pdf_text
    assert not Invoice.objects.exists()

    stories.close("2026-03")
    number = stories.invoice_of(house.vision, "2026-03").number
    issued = words(page(house.ann, f"/t/vision-lab/invoices/{number}/"))
    lines = text[text.index("Description Quantity") : text.index("Total $13.00")]
    assert lines.replace(" 1 job", "") in issued.replace(" 1 job", "").replace(" 2 jobs", "")


@pytest.mark.django_db
def test_what_is_parked_is_opened_before_it_is_approved(house: House) -> None:
    ApprovalLimit.objects.create(metric="total", currency="USD", limit=10)
    post(signed_in(house.op), act="issue", confirmed="yes")
    work()
    shown = page(house.op, MARCH)
    assert shown.count(f'href="{DRAFT}"') == 2  # beside the decision, and in the table
    assert "Held for approval Open the draft. Issuing the month lists it above" in words(shown)
    text = words(opened(signed_in(house.op), DRAFT).content.decode())
    assert "13.00 USD is more than 10.00 USD" in text
    assert "Total $13.00" in text


@pytest.mark.django_db
def test_what_is_none_is_not_there(house: House) -> None:
    op = signed_in(house.op)
    drafts = opened(op, DRAFT).request["PATH_INFO"]
    for path in (
        "/operator/close/2026-13/vision-lab/",
        "/operator/close/1999-01/vision-lab/",
        "/operator/close/2026-03/no-such-lab/",
        f"{drafts}2/pdf",
        f"{drafts}0/pdf",
    ):
        assert op.get(path).status_code == 404, path
    assert op.get(f"{DRAFT}1234567/")["Location"] == DRAFT  # deleted since: drawn up anew
    for path in (DRAFT, drafts, f"{drafts}1/pdf"):
        assert signed_in(house.ann).get(path).status_code == 404, path


@pytest.mark.django_db
def test_what_an_xrechnung_lacks_leads_to_where_it_is_entered(house: House) -> None:
    type(house.vision).objects.filter(pk=house.vision.pk).update(buyer_reference="PO 1")
    post(signed_in(house.op), act="preview")
    work()
    shown = page(house.op, MARCH)
    text = words(shown)
    assert "Missing for an XRechnung See the note at the tenant." in text
    assert "Vision Lab Blocked Vision Lab has a buyer reference" in text
    assert 'href="/admin/tenants/tenant/"' in shown


@pytest.mark.django_db
def test_the_confirmation_counts_what_stands_beside_invoices(house: House) -> None:
    stories.close("2026-03")
    type(house.vision).objects.update(corrections="credit-note")
    builders.ingest(
        house.cluster,
        builders.a_job(
            job_id="17", name="train", gpus=2, started="2026-03-02 10:00", ended="2026-03-02 12:00"
        ),
        builders.a_job(started="2026-04-02 10:00", ended="2026-04-02 20:00"),
        as_of="2026-05-01",
    )
    op = signed_in(house.op)
    op.post("/operator/close/", {"month": "2026-04", "act": "preview"})
    work()
    april = stories.close("2026-04", preview=True)
    sums = [
        total.minor
        for one in april
        for total in (one.total, *(related_document.total for related_document in one.related_documents))
        if total
    ]
    assert any(total < 0 for total in sums)
    answer = op.post("/operator/close/", {"month": "2026-04", "act": "issue"}, follow=True)
    assert f": ${sum(sums) / 100:.2f}?" in words(answer.content.decode())


@pytest.mark.django_db(transaction=True)
@pytest.mark.skipif(SKIP_REASON is not None, reason=SKIP_REASON or "")
@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_it_fits_any_screen(live_server: LiveServer, width: int, theme: Theme) -> None:
    a_house(close=False)
    with chromium() as browser, visit(browser, width=width, theme=theme) as seen:
        sign_in(seen.page, live_server.url, "op@cluster.example", "/operator/")
        seen.page.goto(f"{live_server.url}{DRAFT}")
        seen.page.wait_for_selector("text=Waiting for a worker.")
        previewing.work_beside()
        seen.page.wait_for_selector("text=PDF, marked as draft")
        assert seen.page.get_by_role("link", name="PDF, marked as draft").is_visible()
        assert seen.overflow() <= 0
        assert seen.complaints() == []
