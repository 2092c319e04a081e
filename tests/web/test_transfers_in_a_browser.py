"""Op decides a transfer, and Ann tops her wallet up, in a real browser; the pages fit every window."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import Page, expect

from billing.models import Transfer, Wallet, WalletScope
from billing.payments import automatic
from billing.wallets import wallet_terms
from portal.core.tenants.models import Role
from tests.builders import PASSWORD, a_person, a_seller, an_operator, at
from tests.collecting import Scenario, a_scenario
from tests.statements import IBAN, Line, camt, imported
from tests.web.browser import SKIP_REASON, THEMES, WIDTHS, chromium, visit
from tests.web.test_in_a_browser import sign_in
from tests.web.test_payment_in_a_browser import fill_in, looked_at

if TYPE_CHECKING:
    from pytest_django.live_server_helper import LiveServer

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(SKIP_REASON is not None, reason=SKIP_REASON or ""),
]


@pytest.fixture
def scenario(settings: Any) -> Iterator[Scenario]:
    """March's 4.00 euros are due; Ann has a wallet in euros."""
    with a_scenario(currency="EUR", now=datetime.now(UTC).replace(microsecond=0)) as scenario:
        a_seller(iban=IBAN, bic="COBADEFFXXX")
        a_person("ann@vision.example", scenario.lab, Role.OWNER)
        an_operator()
        wallet_terms.set_scheme(
            tenant=scenario.lab, unit="EUR", scope=WalletScope.TENANT, overdraft=0, since=at("2026-03-01")
        )
        policy = settings.CONTENT_SECURITY_POLICY
        settings.CONTENT_SECURITY_POLICY = policy.replace(
            "form-action 'self'", f"form-action 'self' {scenario.stripe.url}"
        )
        yield scenario


def sign_in_as_op(page: Page, site: str) -> None:
    page.goto(f"{site}/operator/bank-transfers/")
    page.fill("[name=login]", "op@cluster.example")
    page.fill("[name=password]", PASSWORD)
    page.click("main button[type=submit]")
    page.wait_for_url("**/operator/bank-transfers/")


def statement() -> None:
    imported(
        camt(
            Line(
                amount="4.00",
                text="GPU hours of March\nthank you",
                payer="VISION LAB Ltd",
                name="2026-0408-11",
            ),
            Line(amount="-7.00", text="Recall", reversal=True, payer="Vision Lab"),
            Line(amount="120.00", text="Payout of the card processor", payer="Card Processor"),
            Line(amount="3.00", on="soon"),
            Line(amount="1.50", text="INV-2026-0001", name="2026-0408-12"),
        )
    )


def test_op_books_what_waits_with_one_press_and_ann_tops_up_on_the_payment_page(
    live_server: LiveServer, scenario: Scenario
) -> None:
    imported(camt(Line(amount="4.00", text="thank you", payer="VISION LAB Ltd")))
    wallet = Wallet.objects.get()
    with chromium() as browser, visit(browser) as seen:
        page = seen.page
        sign_in_as_op(page, live_server.url)
        page.get_by_role("link", name="Transfers").click()
        page.get_by_role("button", name="INV-2026-0001 of Vision Lab").click()
        expect(page.get_by_text("€4.00 matched.")).to_be_visible()
        assert seen.complaints() == []
    assert Transfer.objects.get().state == "booked"
    with chromium() as browser, visit(browser) as seen:
        page = seen.page
        sign_in(page, live_server.url)
        page.goto(f"{live_server.url}/t/vision-lab/wallets/{wallet.pk}/")
        page.get_by_label("Amount in EUR").fill("50.00")
        page.get_by_role("button", name="Pay on the payment page").click()
        fill_in(page, "4242 4242 4242 4242")
        page.wait_for_url("**/wallets/*/")
        expect(page.get_by_text("Credited", exact=True)).to_be_visible()
        assert seen.complaints() == []
    assert Wallet.objects.get().balance == 5000


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_the_pages_of_transfers_and_top_ups_fit(
    live_server: LiveServer, scenario: Scenario, tmp_path: Path, width: int, theme: Any
) -> None:
    wallet = Wallet.objects.get()
    scenario.save_card("4000000000000341")
    automatic.set_rule(
        wallet=wallet, active=True, below=1000, amount=5000, most=20_000, by="ann", moment=scenario.now
    )
    scenario.collect()
    statement()
    one = f"{Transfer.objects.get(amount=150).pk}/"
    addresses = {"waiting": "", "booked": "?show=booked", "back": "?show=back", "one": one}
    with chromium() as browser, visit(browser, width=width, theme=theme) as seen:
        page = seen.page
        sign_in(page, live_server.url)
        for name, address in {
            "invoice": "invoices/INV-2026-0001/",
            "wallet": f"wallets/{wallet.pk}/",
        }.items():
            page.goto(f"{live_server.url}/t/vision-lab/{address}")
            looked_at(seen, tmp_path / f"{name}-{width}-{theme}.png")
        assert seen.complaints() == []
    with chromium() as browser, visit(browser, width=width, theme=theme) as seen:
        page = seen.page
        sign_in_as_op(page, live_server.url)
        for name, address in addresses.items():
            page.goto(f"{live_server.url}/operator/bank-transfers/{address}")
            looked_at(seen, tmp_path / f"{name}-{width}-{theme}.png")
        assert seen.complaints() == []
