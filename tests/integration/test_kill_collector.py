"""Kill -9 while money is collected, given back and credited: each invoice is paid once, and the books equal Stripe's.

Cards, bank debits that take their time, banks that ask their customer, refunds under credit notes and top-ups; with
notifications shuffled, doubled and lost.
"""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client

from billing.invoicing import credit_notes
from billing.models import (
    Invoice,
    MovedMoney,
    PaymentAttempt,
    PaymentRefund,
    Wallet,
    WalletGrant,
    WalletScope,
)
from billing.payments import checkout_sessions, customers, gateway_access, refunds, saved_methods
from billing.payments.gateway_access import CollectionError
from billing.payments.gateways.base import GatewayError
from billing.receivables import settlement
from billing.reconciliation import reconciliation_run
from billing.rules.money import Money
from billing.wallets import wallet_terms
from portal.core.tenants.models import Tenant
from portal.dev.stripe_sandbox.errors import ApiError
from portal.dev.stripe_sandbox.sandbox import Sandbox
from tests.builders import a_cluster, a_job, a_plan, a_seller, a_tenant, ingest
from tests.collecting import a_top_up
from tests.integration.operators import Operator
from tests.stories import close

pytestmark = pytest.mark.usefixtures("transactional_db")

KILLS = 5
SECRET = "whsec_of_the_tests"
ASKS = "4000002760003184"
BACK = checkout_sessions.ReturnUrls(
    completed="https://bills.example/back/", canceled="https://bills.example/invoice/"
)
LABS = {"card": 6, "asks": 3, "debit": 3}
"""How many are paid by a card, by one whose bank asks each time, and by a bank debit in euros."""
TOP_UPS = 3
SETTLED = {"succeeded", "canceled", "needs_action"}
SEEDS = (*range(3), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(3, 100)))


@pytest.mark.parametrize("seed", SEEDS)
def test_case_089_and_collecting_cases_1_to_3_killed_at_any_moment_all_is_paid_given_back_and_credited_once(
    seed: int, database_url: str, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    dice = random.Random(seed)
    with Sandbox(secret=SECRET) as stripe:
        environ = {"STRIPE_SECRET_KEY": stripe.key, "STRIPE_API_BASE": stripe.url, "STRIPE_MODE": "test"}
        for name, value in environ.items():
            monkeypatch.setenv(name, value)
        settings.STRIPE_SECRET_KEY, settings.STRIPE_API_BASE = stripe.key, stripe.url
        settings.STRIPE_WEBHOOK_SECRETS = [SECRET]
        story = Story(stripe, dice)
        story.begin()
        with Operator(database_url) as op:
            killed = 0
            for kill in range(KILLS):
                at = sum(LABS.values()) * kill // (KILLS + 2)
                after = dice.uniform(0, 0.4)
                killed += op.is_killed_doing("collect", count=moved, at=at, after=after, codes=(0, 1))
                story.goes_on()
            stripe.faults.drop_answer("POST /v1/payment_intents")
            stripe.faults.server_error("POST /v1/refunds", effect=True)
            for _ in range(8):
                story.goes_on(ends=True)
                op.begins("collect")
                op.ends()
        assert killed >= 2
        story.ends_well()


class Story:
    """What payers and Op do meanwhile, and what has to have come of it."""

    def __init__(self, stripe: Sandbox, dice: random.Random) -> None:
        self.stripe, self.dice = stripe, dice
        self.credited: set[int] = set()

    def begin(self) -> None:
        """Each lab has an invoice that is long due; some have bought credit, too."""
        cluster, now = a_cluster(), datetime.now(UTC)
        a_seller()
        plans = {"debit": a_plan("euros", "EUR")}
        dollars = a_plan()
        names = [f"{kind}-{number}" for kind, count in LABS.items() for number in range(count)]
        for name in names:
            a_tenant(name, plan=plans.get(name.split("-")[0], dollars), accounts=[(cluster, name)])
        jobs = [a_job(account=name, gpus=1 + n % 4) for n, name in enumerate(names)]
        ingest(cluster, *jobs, as_of="2026-04-20")
        close("2026-03", on="2026-04-01")
        for lab in Tenant.objects.order_by("slug"):
            customer = customers.get_customer(lab, gateway=gateway_access.get_gateway(), moment=now)
            kind = lab.slug.split("-")[0]
            if kind == "debit":
                saved = self.stripe.dashboard.save_account(customer)
            else:
                saved = self.stripe.dashboard.save_card(
                    customer, ASKS if kind == "asks" else "4242424242424242"
                )
            saved_methods.save_method(
                tenant=lab, method=gateway_access.get_gateway().find_method(saved), moment=now
            )
        for number in range(TOP_UPS):
            lab = Tenant.objects.get(slug=f"card-{number}")
            wallet_terms.set_scheme(tenant=lab, unit="USD", scope=WalletScope.TENANT, overdraft=0, since=now)
            a_top_up(lab.saved_methods.get(), Wallet.objects.get(tenant=lab), 10_00 + number, now=now)

    def goes_on(self, *, ends: bool = False) -> None:
        self._hears_some()
        for intent in self.stripe.objects("payment_intent"):
            if intent["status"] == "processing" and (ends or self.dice.random() < 0.3):
                self.stripe.dashboard.end_debit(intent["id"], settles=True)
        for invoice in Invoice.objects.filter(tenant__slug__startswith="asks"):
            if not _is_paid(invoice) and (ends or self.dice.random() < 0.4):
                self._pays_on_page(invoice, passes=ends or self.dice.random() < 0.7)
        if len(self.credited) < 3 and not ends:
            self._credits_one()

    def _hears_some(self) -> None:
        """Notifications arrive shuffled, some of them twice, some never."""
        messages = self.stripe.webhooks.take()
        self.dice.shuffle(messages)
        for message in messages:
            for _ in range(self.dice.choice((0, 1, 1, 2))):
                Client().post(
                    "/hooks/stripe/", message.body, content_type="application/json", headers=message.headers
                )

    def _pays_on_page(self, invoice: Invoice, *, passes: bool) -> None:
        now = datetime.now(UTC)
        try:
            page = checkout_sessions.open_payment_page(
                invoice=invoice,
                gateway=gateway_access.get_gateway(),
                back=BACK,
                who="ann@vision.example",
                moment=now,
            )
            self.stripe.dashboard.pay(page.external_id or "", ASKS, passes=passes)
        except (CollectionError, GatewayError, ApiError):
            return  # a charge is under way, or the bank refused: another time

    def _credits_one(self) -> None:
        """Op credits something of an invoice that was paid, to be given back to the card."""
        invoices = Invoice.objects.filter(tenant__slug__startswith="card", original=None)
        paid = [row for row in invoices if _is_paid(row)]
        candidates = [row for row in paid if row.pk not in self.credited]
        if candidates:
            now = datetime.now(UTC)
            note = credit_notes.issue_credit_note(
                invoice=candidates[0], reason="Slow.", by="op", on=now.date(), net=Money.of("1.00", "USD")
            )
            refunds.prepare_refunds(credit_note=note, who="op", moment=now)
            self.credited.add(candidates[0].pk)

    def ends_well(self) -> None:
        intents = [
            intent for intent in self.stripe.objects("payment_intent") if intent["status"] == "succeeded"
        ]
        invoices = Invoice.objects.filter(original=None)
        numbers = Counter(intent["metadata"].get("ct_number") for intent in intents)
        assert numbers.pop(None) == TOP_UPS
        assert numbers == Counter(str(number) for number in invoices.values_list("number", flat=True))
        assert all(_is_paid(invoice) for invoice in invoices)
        assert set(PaymentAttempt.objects.values_list("state", flat=True)) <= SETTLED

        refund_amounts = {
            refund["metadata"]["ct_refund"]: refund["amount"] for refund in self.stripe.objects("refund")
        }
        assert len(refund_amounts) == len(self.stripe.objects("refund")) == len(self.credited)
        rows = PaymentRefund.objects.values_list("id", "amount", "state")
        assert {str(key): (amount, state) for key, amount, state in rows} == {
            key: (amount, "succeeded") for key, amount in refund_amounts.items()
        }
        bought = sorted(WalletGrant.objects.filter(kind="top-up").values_list("amount", flat=True))
        assert bought == [10_00 + number for number in range(TOP_UPS)]

        booked = sum(MovedMoney.objects.values_list("payment__amount", flat=True))
        there = sum(intent["amount"] for intent in intents if intent["metadata"].get("ct_number"))
        assert booked == there - sum(refund_amounts.values())
        later = datetime.now(UTC) + timedelta(hours=2)
        assert (
            reconciliation_run.run(gateway=gateway_access.get_gateway(), moment=later, by="op").counts[
                "found"
            ]
            == 0
        )
        assert self.stripe.violations == []


def moved() -> int:
    return MovedMoney.objects.count() + WalletGrant.objects.count()


def _is_paid(invoice: Invoice) -> bool:
    return settlement.load_balance(invoice=invoice, on=datetime.now(UTC).date()).due.minor <= 0
