"""Ann downloads the e-invoice where there is one, and reads why no tax is charged, on any screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from billing.models import Invoice
from billing.tasks import render_document
from portal.core.tenants.models import Tenant
from tests import builders, stories
from tests.web.browser import SKIP_REASON, THEMES, WIDTHS, Theme, chromium, visit
from tests.web.house import House, a_house, page, signed_in
from tests.web.test_reports_in_a_browser import sign_in

if TYPE_CHECKING:
    from pytest_django.live_server_helper import LiveServer

SENTENCE = "Reverse charge: the recipient is liable for the VAT (Article 196 of Directive 2006/112/EC)."
MARCH = "/t/vision-lab/invoices/INV-2026-0002/"


def a_french_house() -> House:
    """Ann's lab is in Paris, the seller in Hamburg, and March is issued and rendered."""
    house = a_house(close=False)
    builders.a_seller(
        country="DE", vat_id="DE811234565", registration="HRB 1234", iban="DE89370400440532013000"
    )
    Tenant.objects.filter(slug="vision-lab").update(
        country="FR", vat_id="FR40303265045", tax_treatment="by-country"
    )
    stories.close("2026-03")
    for invoice in Invoice.objects.all():
        render_document(invoice_id=invoice.pk)
    return house


@pytest.mark.django_db
def test_the_page_says_why_and_leads_to_the_xml() -> None:
    house = a_french_house()
    text = page(house.ann, MARCH)
    for shown in (
        SENTENCE,
        "VAT 0 % (reverse charge)",
        "VAT id FR40303265045",
        "France",
        f'href="{MARCH}xml"',
    ):
        assert shown in text, shown

    answer = signed_in(house.ann).get(f"{MARCH}xml")
    assert answer["Content-Type"] == "application/xml"
    assert answer["Content-Disposition"] == 'attachment; filename="INV-2026-0002.xml"'
    assert b"VATEX-EU-AE" in bytes(answer.content)
    for stranger in (house.eve, house.ben):
        assert signed_in(stranger).get(f"{MARCH}xml").status_code == 404


@pytest.mark.django_db
def test_without_an_e_invoice_nothing_leads_to_one() -> None:
    house = a_french_house()
    text = page(house.eve, "/t/speech-lab/invoices/INV-2026-0001/")  # which has no country
    assert "E-invoice" not in text
    assert signed_in(house.eve).get("/t/speech-lab/invoices/INV-2026-0001/xml").status_code == 404


@pytest.mark.django_db(transaction=True)
@pytest.mark.skipif(SKIP_REASON is not None, reason=SKIP_REASON or "")
@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_it_fits_any_screen(live_server: LiveServer, width: int, theme: Theme) -> None:
    a_french_house()
    with chromium() as browser, visit(browser, width=width, theme=theme) as seen:
        sign_in(seen.page, live_server.url, "ann@vision.example", MARCH)
        assert seen.page.get_by_role("link", name="E-invoice").is_visible()
        assert seen.page.get_by_text(SENTENCE).is_visible()
        assert seen.page.get_by_text("SHA-256, as on the PDF").is_visible()
        assert seen.overflow() <= 0
        assert seen.complaints() == []
