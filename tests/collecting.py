"""Stories of collecting: an invoice of 4.00 that is due, a card at the stand-in for Stripe, rounds of collecting."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.test import override_settings

from billing.invoicing import credit_notes
from billing.models import Invoice, Notice, Payment, PaymentAttempt, Plan, SavedMethod, TopUp, Wallet
from billing.payments import charge_attempts, collection_run, customers, gateway_access, saved_methods
from billing.payments.charge_attempts import NotChargeableError
from billing.payments.collection_run import CollectionTally
from billing.payments.gateways.base import Gateway
from billing.receivables import settlement
from billing.rules.money import Money
from portal.core.tenants.models import Tenant
from portal.dev.stripe_sandbox.sandbox import Sandbox
from tests import stories
from tests.builders import LONG_AGO, a_cluster, a_job, a_plan, a_seller, a_tenant, at, ingest

DUE = at("2026-04-20 09:00")
"""Five days after the invoice of March is due."""


@dataclass
class Scenario:
    """Where money is collected: the stand-in, the clock that both go by, and the invoice that is due."""

    stripe: Sandbox
    lab: Tenant
    now: datetime = DUE
    rounds: list[CollectionTally] = field(default_factory=list)

    @property
    def gateway(self) -> Gateway:
        return gateway_access.get_gateway()

    @property
    def invoice(self) -> Invoice:
        return stories.invoice_of(self.lab, "2026-03")

    def wait(self, **span: int) -> None:
        """Time goes by, here and there."""
        self.now += timedelta(**span)
        self.stripe.clock.set(self.now)

    def save_card(self, number: str = "4242424242424242", *, set_up: bool = False) -> SavedMethod:
        """Ann saves a card; it is charged from now on."""
        return self.save_card_of(self.lab, number, set_up=set_up)

    def save_card_of(
        self, lab: Tenant, number: str = "4242424242424242", *, set_up: bool = False
    ) -> SavedMethod:
        customer = customers.get_customer(lab, gateway=self.gateway, moment=self.now)
        name = self.stripe.dashboard.save_card(customer, number, set_up=set_up)
        return self._saved(lab, name)

    def stripe_customer(self, name: str) -> str:
        """A customer of somebody else who shares the account."""
        return self.gateway.create_customer({"name": name}, key=f"another-deployment:{name}")

    def save_account(self) -> SavedMethod:
        """Ann lets her bank account be debited; it is from now on."""
        customer = customers.get_customer(self.lab, gateway=self.gateway, moment=self.now)
        name = self.stripe.dashboard.save_account(customer)
        return self._saved(self.lab, name)

    def _saved(self, lab: Tenant, name: str) -> SavedMethod:
        saved_method = saved_methods.save_method(
            tenant=lab, method=self.gateway.find_method(name), moment=self.now
        )
        assert saved_method is not None
        return saved_method

    def collect(self) -> CollectionTally:
        """A round of collecting, as it runs each minute."""
        done = collection_run.run_collection(gateway=self.gateway, clock=lambda: self.now)
        self.rounds.append(done)
        return done

    def charge(self) -> PaymentAttempt | NotChargeableError:
        return charge_attempts.charge_invoice(
            invoice=self.invoice, gateway=self.gateway, moment=self.now, on=self.now.date()
        )

    @property
    def states(self) -> list[str]:
        """How each attempt stands, oldest first."""
        return list(
            PaymentAttempt.objects.order_by("created_at", "invoice", "pk").values_list("state", flat=True)
        )

    @property
    def paid(self) -> str:
        return settlement.load_balance(invoice=self.invoice, on=self.now.date()).paid.text

    @property
    def settlement(self) -> str:
        return settlement.load_balance(invoice=self.invoice, on=self.now.date()).settlement.value

    @property
    def charged(self) -> list[int]:
        """What the stand-in has charged, in cents."""
        return [
            intent["amount"]
            for intent in self.stripe.objects("payment_intent")
            if intent["status"] == "succeeded"
        ]

    def books_agree(self) -> None:
        """What was paid here is what was taken there, and nothing was asked that the library's types do not allow."""
        net_charges = sum(
            charge["amount"] - charge["amount_refunded"]
            for charge in self.stripe.objects("charge")
            if charge["status"] == "succeeded"
        )
        assert (
            sum(Payment.objects.filter(moved__isnull=False).values_list("amount", flat=True)) == net_charges
        )
        assert self.stripe.violations == []


@contextmanager
def a_scenario(*, currency: str = "USD", now: datetime = DUE, price: str = "2.00") -> Iterator[Scenario]:
    """March's invoice of the vision lab, 4.00 (two hours at 2.00), due on 15 April; nothing is saved yet.

    Notifications are signed by the stand-in's clock and refused when they are old: where they matter, it is today.
    """
    with Sandbox(now=now, secret="whsec_of_the_tests") as stripe:
        overrides = {
            "STRIPE_SECRET_KEY": stripe.key,
            "STRIPE_API_BASE": stripe.url,
            "STRIPE_WEBHOOK_SECRETS": ["whsec_of_the_tests"],
        }
        with override_settings(**overrides):
            yield Scenario(stripe, a_lab(currency, price), now)


def a_lab(currency: str, price: str) -> Tenant:
    cluster = a_cluster()
    a_seller()
    lab = a_tenant(
        "vision-lab",
        plan=a_plan(currency=currency, prices=[("gpu-hour", {}, price, LONG_AGO)]),
        accounts=[(cluster, "vision")],
    )
    ingest(
        cluster,
        a_job(account="vision", started="2026-03-02 10:00", ended="2026-03-02 12:00"),
        as_of="2026-04-20",
    )
    stories.close("2026-03", lab, on="2026-04-01")
    Notice.objects.all().delete()  # that it was issued is told in another story
    return lab


def more_labs(scenario: Scenario, names: list[str]) -> list[Tenant]:
    """Labs beside the vision lab, each with an invoice of March over 4.00 that is due, and a card."""
    cluster, plan = a_cluster(), Plan.objects.get()
    labs = [a_tenant(name, plan=plan, accounts=[(cluster, name)]) for name in names]
    jobs = [a_job(account=name, started="2026-03-02 10:00", ended="2026-03-02 12:00") for name in names]
    ingest(cluster, *jobs, as_of="2026-04-20")
    stories.close("2026-03", *labs, on="2026-04-01")
    Notice.objects.filter(tenant__in=labs).delete()
    for lab in labs:
        scenario.save_card_of(lab)
    return labs


def a_top_up(card: SavedMethod, wallet: Wallet, amount: int, *, now: datetime) -> PaymentAttempt:
    """Somebody buys credit for the wallet with the card: committed, and to be sent by the next round."""
    top_up = TopUp.objects.create(
        tenant=card.tenant, wallet=wallet, amount=amount, created_at=now, requested_by="ann@vision.example"
    )
    attempt = PaymentAttempt(
        tenant=card.tenant, top_up=top_up, amount=amount, currency=wallet.unit, method=card, created_at=now
    )
    attempt.params = {
        "amount": amount,
        "currency": wallet.unit.lower(),
        "customer": customers.get_billing_account(card.tenant).customer,
        "payment_method": card.external_id,
        "allowed_payment_method_types": [card.kind],
        "confirm": True,
        "off_session": True,
        "metadata": charge_attempts.charge_tags(attempt),
    }
    attempt.save(force_insert=True)
    return attempt


def credited(scenario: Scenario, net: str) -> Invoice:
    """A credit note that takes so much before tax back from the invoice."""
    return credit_notes.issue_credit_note(
        invoice=scenario.invoice, reason="Slow.", by="op", on=scenario.now.date(), net=Money.of(net, "USD")
    )
