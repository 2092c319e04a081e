"""What a wallet paid, its statement and a margin in a real browser: nothing complains, nothing is cut off."""

from __future__ import annotations

import os
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from billing.models import Wallet, WalletScope
from billing.reports import operating_costs
from billing.reports.operating_costs import Cost
from billing.wallets import grants, wallet_terms
from clusters import capacity
from clusters.connectors.base import NodeSeen, NodeState
from tests import builders, stories
from tests.web.browser import SKIP_REASON, THEMES, WIDTHS, chromium, visit
from tests.web.test_reports_in_a_browser import sign_in

if TYPE_CHECKING:
    from pytest_django.live_server_helper import LiveServer

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(SKIP_REASON is not None, reason=SKIP_REASON or ""),
]


def a_prepaid_lab() -> Wallet:
    """In March 40 hours were used, of which a wallet paid 50.00; two GPUs cost 0.50 an hour to run."""
    builders.a_seller(iban="DE02120300000000202051", bic="BYLADEM1001")
    cluster = builders.a_cluster(complete_through="2026-09-01")
    plan = builders.a_plan("prepaid", settles="wallet-first")
    tenant = builders.a_tenant(plan=plan, accounts=[(cluster, "vision")], tax_rate=Decimal(19))
    wallet_terms.set_scheme(
        tenant=tenant, unit="USD", scope=WalletScope.TENANT, overdraft=0, since=builders.at("2026-03-01")
    )
    wallet = Wallet.objects.get()
    for cents, key, ends in (
        (20_00, "welcome", date(2026, 6, 1)),
        (30_00, "a top-up of a long name " * 4, None),
    ):
        grants.grant(
            wallet=wallet,
            amount=cents,
            key=key,
            who="op",
            moment=builders.at("2026-03-01 09:00"),
            expires_on=ends,
        )
    builders.ingest(cluster, builders.a_job(gpus=40, started="2026-03-20 10:00", ended="2026-03-20 11:00"))
    for moment in ("2026-03-01", "2026-04-01"):
        seen = [NodeSeen(name="n1", gpu_model="a100", gpus=48, state=NodeState.UP)]
        capacity.observe(cluster, seen, builders.at(moment))
    operating_costs.set_costs([Cost("", "a100", "USD", Decimal("0.001"), date(2026, 1, 1))])
    stories.closed("2026-03", tenant)
    builders.a_person("ann@vision.example", tenant)
    builders.an_operator()
    return wallet


def test_what_a_wallet_paid_its_statement_and_the_margin_are_seen_at_both_widths(
    live_server: LiveServer, tmp_path: Path
) -> None:
    wallet = a_prepaid_lab()
    folder = Path(os.environ.get("SCREENSHOTS", tmp_path))
    pages = (
        ("ann@vision.example", "/t/vision-lab/invoices/INV-2026-0001/", "Paid from wallet"),
        (
            "ann@vision.example",
            f"/t/vision-lab/wallets/{wallet.pk}/statement/?month=2026-03",
            "Closing balance",
        ),
        ("op@cluster.example", "/operator/reports/?from=2026-03-01&through=2026-03-31", "Operating cost"),
    )
    with chromium() as browser:
        for place, (email, path, words) in enumerate(pages):
            for width in WIDTHS:
                for theme in THEMES:
                    with visit(browser, width=width, theme=theme) as seen:
                        sign_in(seen.page, live_server.url, email, path)
                        expect(seen.page.get_by_text(words).first).to_be_visible()
                        seen.page.screenshot(path=folder / f"{place}-{width}-{theme}.png", full_page=True)
                        assert seen.overflow() <= 0
                        assert seen.complaints() == []
