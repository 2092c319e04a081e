"""Stripe's books beside ours: what agrees, each kind of difference, and where each cent of a payout is from."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import uuid4

import pytest
from django.core.management import call_command

from billing.models import (
    Difference,
    DifferenceKind,
    GatewayEvent,
    GatewayMovement,
    GatewayPayout,
    Invoice,
    Payment,
    PaymentAttempt,
    Reconciliation,
)
from billing.payments import customers, gateway_access
from billing.reconciliation import reconciliation_run
from portal.core.tenants.models import Tenant
from tests.collecting import DUE, Scenario, more_labs

pytestmark = pytest.mark.django_db(transaction=True)

LABS = [f"lab-{number:02d}" for number in range(1, 14)]


def labs(scenario: Scenario, names: list[str]) -> None:
    """All are charged, and four days go by."""
    more_labs(scenario, names)
    scenario.collect()
    scenario.wait(days=4)


def reconcile(scenario: Scenario, *, since: datetime | None = None) -> dict[str, int]:
    """As each night; with `since` as by the command, from three days before that."""
    run = reconciliation_run.run(gateway=scenario.gateway, moment=scenario.now, by="op", since=since)
    counts: dict[str, int] = run.counts
    return counts


def intent(lab: str) -> str:
    return PaymentAttempt.objects.filter(tenant__slug=lab).order_by("created_at")[0].external_id or ""


def charge_of(scenario: Scenario, lab: str) -> dict[str, str]:
    (charge,) = [
        charge for charge in scenario.stripe.objects("charge") if charge["payment_intent"] == intent(lab)
    ]
    return charge


def charged_again(scenario: Scenario, lab: str, *, invoice: int = 0, number: str = "") -> str:
    """A charge of ours that only Stripe knows; of the lab's invoice, unless said."""
    existing = Invoice.objects.get(tenant__slug=lab)
    (method,) = Tenant.objects.get(slug=lab).saved_methods.all()
    params = {
        "amount": 400,
        "currency": "usd",
        "customer": customers.get_billing_account(existing.tenant).customer,
        "payment_method": method.external_id,
        "confirm": True,
        "off_session": True,
        "metadata": gateway_access.object_tags(
            tenant=lab,
            kind="invoice",
            attempt=uuid4(),
            invoice=invoice or existing.pk,
            number=number or existing.number,
        ),
    }
    return scenario.gateway.charge(params, key=f"another process: {uuid4().hex[:8]} {lab}").id


def shown() -> list[tuple[str, str]]:
    rows = Difference.objects.filter(resolved_at=None).order_by("kind", "object_id")
    return [(row.kind, row.object_id) for row in rows]


def test_books_that_agree_have_no_difference_and_say_so(scenario: Scenario) -> None:
    labs(scenario, LABS[:3])
    counts = reconcile(scenario)
    assert (counts["charges"], counts["found"], counts["adopted"], counts["foreign"]) == (3, 0, 0, 0)
    assert shown() == []
    row = Reconciliation.objects.get()
    # 3 × 4.00; Stripe keeps 0.42 of each (2.9 % and 0.30).
    assert row.sums == {"USD": {"charged": 1200, "booked": 1200, "fees": 126, "paid_out": 1074}}
    assert scenario.stripe.violations == []


def test_each_of_twelve_planted_differences_is_found_with_its_kind(scenario: Scenario) -> None:
    labs(scenario, LABS)
    assert reconcile(scenario)["found"] == 0
    dashboard, planted = scenario.stripe.dashboard, set()

    dashboard.refund(intent("lab-07"), 100)
    scenario.collect()  # takes the refund in, which was made by hand
    (refund,) = scenario.stripe.objects("refund")
    planted.add(("refund-without-note", refund["id"]))

    planted.add(("missing-here", charged_again(scenario, "lab-01", invoice=999, number="INV-2026-0999")))
    dashboard.forget(intent("lab-02"))
    planted.add(("missing-there", intent("lab-02")))
    dashboard.alter(intent("lab-03"), amount=399)
    planted.add(("amount", intent("lab-03")))
    dashboard.alter(intent("lab-04"), currency="eur")
    planted.add(("currency", intent("lab-04")))
    dashboard.alter(intent("lab-05"), status="processing")
    planted.add(("status", intent("lab-05")))
    planted.add(("paid-twice", charged_again(scenario, "lab-06")))
    planted.add(("dispute-unknown", dashboard.dispute(intent("lab-08"))))
    dashboard.alter(charge_of(scenario, "lab-09")["balance_transaction"], fee=99, net=301)
    planted.add(("fee", intent("lab-09")))
    dashboard.alter(charge_of(scenario, "lab-10")["id"], balance_transaction=None)
    planted.add(("fee-unknown", intent("lab-10")))
    planted.add(("missing-here", dashboard.refund(intent("lab-11"), 50)))
    planted.add(("movement-unknown", dashboard.move(-250)))
    payout = scenario.stripe.objects("payout")[-1]
    dashboard.alter(payout["id"], amount=payout["amount"] + 1)
    planted.add(("payout-sum", payout["id"]))
    scenario.wait(hours=2)

    counts = reconcile(scenario, since=DUE)

    # lab-09's payout holds the fee that was altered: its own sum tells of it too.
    differences = set(shown())
    assert planted <= differences, planted - differences
    assert {kind for kind, _ in differences} == {kind.value for kind in DifferenceKind}
    assert len(DifferenceKind.values) == 12
    assert differences - planted <= {
        ("payout-sum", payout["id"]) for payout in scenario.stripe.objects("payout")
    }
    assert counts["adopted"] == 1  # the second payment of lab-06's invoice

    rows = list(Difference.objects.order_by("pk").values())
    paid = Payment.objects.count()
    scenario.wait(minutes=10)
    again = reconcile(scenario)
    assert (again["opened"], again["resolved"], again["adopted"]) == (0, 0, 0)
    assert [{**row, "last_seen": None} for row in rows] == [
        {**difference, "last_seen": None} for difference in Difference.objects.order_by("pk").values()
    ]
    assert Payment.objects.count() == paid
    assert scenario.stripe.violations == []


def test_what_both_have_is_told_in_words_with_tenant_and_invoice(scenario: Scenario) -> None:
    labs(scenario, LABS[:1])
    scenario.stripe.dashboard.alter(intent("lab-01"), amount=399)
    reconcile(scenario)
    row = Difference.objects.get()
    assert (row.kind, row.ours, row.theirs) == ("amount", "4.00 USD", "3.99 USD")
    assert (row.tenant.slug if row.tenant else "", str(row.invoice)) == ("lab-01", "INV-2026-0002")


def test_a_difference_that_is_gone_is_resolved_and_opens_again_when_it_returns(scenario: Scenario) -> None:
    labs(scenario, LABS[:1])
    scenario.stripe.dashboard.alter(intent("lab-01"), amount=399)
    reconcile(scenario)
    first = Difference.objects.get()
    reconciliation_run.note(difference=first, text="Asked Stripe.", by="op", moment=scenario.now)
    scenario.stripe.dashboard.alter(intent("lab-01"), amount=400)
    scenario.wait(days=1)
    assert reconcile(scenario)["resolved"] == 1
    row = Difference.objects.get()
    assert (row.resolved_at, row.note, row.noted_by) == (scenario.now, "Asked Stripe.", "op")

    scenario.stripe.dashboard.alter(intent("lab-01"), amount=399)
    scenario.wait(days=1)
    assert reconcile(scenario, since=DUE)["opened"] == 1
    row = Difference.objects.get()
    assert (row.resolved_at, row.first_seen) == (None, first.first_seen)


def test_one_that_is_older_than_the_window_stays_open_until_it_is_looked_at_again(scenario: Scenario) -> None:
    labs(scenario, LABS[:1])
    scenario.stripe.dashboard.alter(intent("lab-01"), amount=399)
    reconcile(scenario)
    scenario.wait(days=40)
    later = reconciliation_run.run(
        gateway=scenario.gateway, moment=scenario.now, by="op", since=DUE + timedelta(days=30)
    ).counts
    assert (later["charges"], later["resolved"]) == (0, 0)
    scenario.stripe.dashboard.alter(intent("lab-01"), amount=400)
    assert reconcile(scenario)["resolved"] == 1  # goes back to the oldest that is open
    assert shown() == []


def test_a_look_at_an_older_window_resolves_nothing_that_came_later(scenario: Scenario) -> None:
    labs(scenario, LABS[:1])
    scenario.stripe.dashboard.alter(intent("lab-01"), amount=399)
    reconcile(scenario)
    older = reconciliation_run.run(
        gateway=scenario.gateway,
        moment=scenario.now,
        by="op",
        since=DUE - timedelta(days=20),
        until=DUE - timedelta(days=1),
    )
    assert (older.counts["charges"], older.counts["resolved"], len(shown())) == (0, 0, 1)


def test_a_comparison_by_hand_hides_nothing_that_was_missed_before_it(scenario: Scenario) -> None:
    """Nights failed for three weeks, and Op looked at the last day alone: the next night looks at all of them."""
    labs(scenario, LABS[:1])
    reconcile(scenario)
    last_good = scenario.now
    scenario.wait(days=21)
    reconcile(scenario, since=scenario.now - timedelta(days=1))
    scenario.wait(days=1)
    reconcile(scenario)
    assert Reconciliation.objects.latest("pk").since == last_good - timedelta(days=3)
    yesterday = scenario.now
    scenario.wait(days=1)
    reconcile(scenario)
    assert Reconciliation.objects.latest("pk").since == yesterday - timedelta(days=3)


def test_a_first_comparison_by_hand_is_not_all_that_is_compared(scenario: Scenario) -> None:
    labs(scenario, LABS[:1])
    reconcile(scenario, since=scenario.now - timedelta(days=1))
    first = scenario.now
    scenario.wait(days=1)
    reconcile(scenario)
    assert Reconciliation.objects.latest("pk").since == first - timedelta(days=34)


def test_a_charge_that_nobody_knew_of_is_adopted_and_its_invoice_is_paid(scenario: Scenario) -> None:
    """The only thing that reconciling writes of money: what was paid already, of an invoice that is open."""
    scenario.save_card()
    charged_again(scenario, "vision-lab")
    scenario.wait(hours=2)
    assert (scenario.paid, reconcile(scenario)["adopted"]) == ("0.00", 1)
    assert (scenario.paid, scenario.states) == ("4.00", ["succeeded"])
    scenario.collect()
    scenario.books_agree()


def test_what_belongs_to_nothing_here_stops_its_tenant_until_somebody_looked(scenario: Scenario) -> None:
    scenario.save_card()
    name = charged_again(scenario, "vision-lab", invoice=999, number="INV-2026-0999")
    scenario.stripe.dashboard.refund(name, 400)
    scenario.wait(hours=2)
    assert reconcile(scenario)["found"] == 0  # it was given back
    name = charged_again(scenario, "vision-lab", invoice=999, number="INV-2026-0999")
    scenario.wait(hours=2)
    reconcile(scenario)
    assert shown() == [("missing-here", name)]
    assert GatewayEvent.objects.get(state="review").tenant_slug == "vision-lab"


def test_what_shares_the_account_is_counted_and_left_alone(scenario: Scenario) -> None:
    labs(scenario, LABS[:1])
    (method,) = Tenant.objects.get(slug="lab-01").saved_methods.all()
    params = {
        "amount": 900,
        "currency": "usd",
        "customer": customers.get_billing_account(method.tenant).customer,
        "payment_method": method.external_id,
        "confirm": True,
        "off_session": True,
        "metadata": {"ct_deployment": str(uuid4()), "ct_number": "INV-2026-0002"},
    }
    other = scenario.gateway.charge(params, key="somebody else: 1").id
    scenario.stripe.dashboard.refund(other, 100)
    scenario.wait(days=4)
    counts = reconcile(scenario)
    assert (counts["charges"], counts["found"], counts["foreign"]) == (1, 0, 2)
    assert GatewayMovement.objects.filter(foreign=True).count() == 2


def test_a_payout_is_traced_to_its_invoices_to_the_cent(scenario: Scenario) -> None:
    labs(scenario, LABS[:3])
    scenario.stripe.dashboard.refund(intent("lab-03"), 100)
    scenario.collect()
    scenario.wait(days=3)
    reconcile(scenario)
    rows = GatewayMovement.objects.exclude(kind="payout").select_related("attempt__invoice", "payout")
    traced = sorted((str(row.attempt and row.attempt.invoice), row.kind, row.amount, row.fee) for row in rows)
    assert traced == [
        ("INV-2026-0002", "charge", 400, 42),
        ("INV-2026-0003", "charge", 400, 42),
        ("INV-2026-0004", "charge", 400, 42),
        ("INV-2026-0004", "refund", -100, 0),
    ]
    paid_out = {row.pk: row.amount for row in GatewayPayout.objects.all()}
    assert sum(paid_out.values()) == sum(row.net for row in rows if row.payout_id)


def test_a_payment_that_settles_in_another_currency_keeps_its_fee_in_that(scenario: Scenario) -> None:
    scenario.save_card()
    scenario.charge()
    (charge,) = scenario.stripe.objects("charge")
    booked = {"currency": "eur", "amount": 368, "fee": 39, "net": 329, "exchange_rate": 0.92}
    scenario.stripe.dashboard.alter(charge["balance_transaction"], **booked)
    PaymentAttempt.objects.update(fee=None, fee_currency="")
    scenario.wait(days=4)
    reconcile(scenario)
    attempt = PaymentAttempt.objects.get()
    assert (attempt.fee, attempt.fee_currency, shown()) == (39, "EUR", [])
    assert Reconciliation.objects.get().sums["EUR"]["fees"] == 39


def test_the_command_says_what_differs_and_what_to_do(
    scenario: Scenario, capsys: pytest.CaptureFixture[str]
) -> None:
    labs(scenario, LABS[:1])
    scenario.stripe.dashboard.alter(intent("lab-01"), amount=399)
    with pytest.raises(SystemExit) as ended:
        call_command("reconcile", since="2026-04-20", until="2026-04-24T10:00:00Z")
    assert ended.value.code == 1
    output = capsys.readouterr().out
    assert "1 difference is open" in output
    assert (
        f"Another amount: {intent('lab-01')}, lab-01, INV-2026-0002: here 4.00 USD, there 3.99 USD." in output
    )
