"""No card number and no secret is kept, logged or shown: database, logs and pages are looked through."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.test import Client

from billing.models import PaymentAttempt
from billing.payments import checkout_sessions, refunds, webhook_events
from billing.reconciliation import reconciliation_run
from portal.core.tenants.models import Role
from portal.dev.stripe_sandbox.errors import ApiError
from portal.dev.stripe_sandbox.keys import PORTAL_RIGHTS
from tests import builders
from tests.collecting import Scenario, a_scenario, credited
from tests.web.house import signed_in

pytestmark = pytest.mark.django_db(transaction=True)

KEY = "rk_test_plantedKey0123456789abcdefghij"
SIGNING = ("whsec_of_the_tests", "whsec_plantedSecretOfTheWebhook0123")
GOOD, DECLINED, ASKS, REFUSED = "4242424242424242", "4000000000000341", "4000002760003184", "4000000000009987"
IBAN = "DE89370400440532013000"
BACK = checkout_sessions.ReturnUrls(
    completed="https://bills.example/back/", canceled="https://bills.example/invoice/"
)
HINT = re.compile(r"The card 4242 4242 4242 4242 pays, .* requires 3-D Secure\.")
"""What the sandbox tells newcomers to type: Stripe's published test numbers, shown nowhere else."""
CARD = re.compile(r"(?<![\w-])(?:\d[ -]?){13,19}(?![\w-])")
PAGES = (
    "/t/vision-lab/payment/", "/t/vision-lab/invoices/", "/t/vision-lab/invoices/INV-2026-0001/",
    "/operator/reconciliation/", "/operator/reconciliation/?state=resolved",
    "/admin/billing/paymentattempt/", "/admin/billing/gatewayevent/", "/admin/billing/paymentrefund/",
    "/admin/billing/paymentdispute/", "/admin/billing/savedmethod/", "/admin/billing/billingaccount/",
)  # fmt: skip


@pytest.fixture
def scenario(settings: Any) -> Iterator[Scenario]:
    with a_scenario(now=datetime.now(UTC).replace(microsecond=0)) as scenario:
        settings.STRIPE_SECRET_KEY = scenario.stripe.keys.restrict(KEY, PORTAL_RIGHTS)
        settings.STRIPE_WEBHOOK_SECRETS = list(SIGNING)
        yield scenario


def test_no_number_of_a_card_and_no_secret_is_in_the_database_the_logs_or_on_a_page(
    scenario: Scenario, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.DEBUG):
        everything_that_can_happen(scenario)
        shown = pages()
    out, err = capfd.readouterr()
    logged = "\n".join([*(record.getMessage() for record in caplog.records), caplog.text, out, err])
    forbidden = secrets(scenario)
    assert len(forbidden) > 10
    for place, text in {"database": database(), "logs": logged, "pages": shown}.items():
        assert [secret for secret in forbidden if secret in text] == [], place
        assert [number for number in CARD.findall(text) if is_a_card(number)] == [], place
    assert "4242" in shown  # the last four digits are what is kept
    assert "js.stripe.com" not in shown


def everything_that_can_happen(scenario: Scenario) -> None:
    """Cards that are good, refused, lost or ask; pages; refunds, a dispute; forged news; a key that is refused."""
    dashboard = scenario.stripe.dashboard
    scenario.save_account()
    for number in (DECLINED, REFUSED, ASKS):
        scenario.save_card(number)
        scenario.collect()
        scenario.wait(days=8)
    page = checkout_sessions.open_payment_page(
        invoice=scenario.invoice,
        gateway=scenario.gateway,
        back=BACK,
        who="ann@vision.example",
        moment=scenario.now,
    )
    for number, passes in ((DECLINED, True), (ASKS, False), (GOOD, True)):
        try:
            dashboard.pay(page.external_id or "", number, passes=passes)
        except ApiError:
            continue
    scenario.save_card(GOOD)
    for message in scenario.stripe.webhooks.take():
        for headers in (message.headers, {"Stripe-Signature": f"t=1,v1={SIGNING[1]}"}):
            Client().post("/hooks/stripe/", message.body, content_type="application/json", headers=headers)
    for event in webhook_events.list_waiting(before=scenario.now.replace(year=2100)):
        webhook_events.apply_event(event, gateway=scenario.gateway, moment=scenario.now)
    scenario.collect()
    paid = PaymentAttempt.objects.get(state="succeeded")
    for row in refunds.prepare_refunds(credit_note=credited(scenario, "1.00"), who="op", moment=scenario.now):
        refunds.follow_refund(refund=row, gateway=scenario.gateway, moment=scenario.now)
    dashboard.refund(paid.external_id or "", 50)
    dashboard.lose_dispute(dashboard.dispute(paid.external_id or ""))
    scenario.collect()
    scenario.wait(days=3)
    dashboard.move(-5)
    reconciliation_run.run(gateway=scenario.gateway, moment=scenario.now, by="op")
    scenario.stripe.keys.revoke(KEY)
    for _ in range(2):
        assert scenario.collect().troubles
    with pytest.raises(SystemExit):
        call_command("collect", "--json")


def pages() -> str:
    """As an operator sees them who owns the tenant, too."""
    op = builders.an_operator("op@lab.example")
    op.is_superuser = True
    op.save()
    op.memberships.create(
        tenant_id=PaymentAttempt.objects.order_by("created_at")[0].tenant_id, role=Role.OWNER
    )
    browser, texts = signed_in(op), []
    for path in PAGES:
        response = browser.get(path)
        assert response.status_code == 200, path
        texts.append(response.content.decode())
    return HINT.sub("", "\n".join(texts))


def database() -> str:
    """Every column of every row of every table, as text."""
    rows = []
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT c.oid::regclass::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE c.relkind IN ('r', 'p') AND n.nspname = 'public'"
        )
        tables = [row[0] for row in cursor.fetchall()]
        assert "billing_paymentattempt" in tables
        assert "audit_entry" in tables
        for table in tables:
            cursor.execute(f"SELECT t::text FROM {table} t")
            rows += [row[0] for row in cursor.fetchall()]
    return "\n".join(rows)


def secrets(scenario: Scenario) -> set[str]:
    """What was planted, and what the stand-in gave out that lets somebody pay or confirm."""
    client_secrets = {
        secret
        for kind in ("payment_intent", "setup_intent", "checkout.session")
        for resource in scenario.stripe.objects(kind)
        if (secret := resource.get("client_secret"))
    }
    numbers = {GOOD, DECLINED, ASKS, REFUSED, IBAN}
    spaced = {" ".join(re.findall(".{4}", number)) for number in numbers if number.isdecimal()}
    return {KEY, scenario.stripe.key, *SIGNING, *client_secrets, *numbers, *spaced}


def is_a_card(text: str) -> bool:
    """By its first digits and its check digit (Luhn)."""
    digits = [int(piece) for piece in text if piece.isdecimal()]
    doubled = [digit * 2 - 9 * (digit > 4) for digit in digits[-2::-2]]
    return digits[0] in {3, 4, 5, 6} and (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


def test_the_look_for_card_numbers_sees_them() -> None:
    assert [is_a_card(number) for number in (GOOD, "4242 4242 4242 4242", "4242424242424241")] == [
        True,
        True,
        False,
    ]
    assert CARD.findall("of 4242-4242-4242-4242,") == ["4242-4242-4242-4242"]
