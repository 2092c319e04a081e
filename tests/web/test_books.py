"""Op's page of reconciliation: what differs, in words; notes; and payouts down to their invoices."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from datetime import UTC, datetime
from io import StringIO

import pytest

from billing.models import Difference, GatewayPayout
from billing.reconciliation import reconciliation_run
from portal.core.outbox.models import OutboxMessage
from portal.core.tenants.models import User
from portal.ops.metrics.collector import exposed
from tests import builders
from tests.collecting import Scenario, a_scenario
from tests.history import history
from tests.web.house import page, signed_in
from tests.web.test_overview import words

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def scenario() -> Iterator[Scenario]:
    """Ann's invoice is charged, refunded in part by hand, and paid out."""
    with a_scenario() as scenario:
        scenario.save_card()
        scenario.collect()
        scenario.wait(days=3)
        yield scenario


@pytest.fixture
def op() -> User:
    return builders.an_operator("op@lab.example")


def compare(scenario: Scenario) -> None:
    reconciliation_run.run(gateway=scenario.gateway, moment=scenario.now, by="each night")


def test_books_that_agree_say_so(scenario: Scenario, op: User) -> None:
    compare(scenario)
    text = words(page(op, "/operator/reconciliation/"))
    assert "No differences" in text
    assert "Charged $4.00 at Stripe, in that window" in text
    assert "Paid out $3.58 after $0.42 of fees" in text


def test_before_the_first_comparison_the_page_says_when_it_comes(scenario: Scenario, op: User) -> None:
    text = words(page(op, "/operator/reconciliation/"))
    assert "It runs each night after 02:00 UTC" in text
    assert "Differences – not compared yet" in text  # not none: nobody has looked


def test_a_difference_says_what_it_means_what_both_have_and_what_to_do(scenario: Scenario, op: User) -> None:
    (intent,) = scenario.stripe.objects("payment_intent")
    scenario.stripe.dashboard.alter(intent["id"], amount=399)
    compare(scenario)
    text = words(page(op, "/operator/reconciliation/"))
    assert "Another amount Open INV-2026-0001 Vision Lab" in text
    assert "The amounts differ. Find out who changed it" in text
    assert f"ClusterTab 4.00 USD Stripe 3.99 USD {intent['id']}" in text

    row = Difference.objects.get()
    signed_in(op).post(
        "/operator/reconciliation/", {"act": "note", "difference": row.pk, "note": "Asked <b>Stripe</b>."}
    )
    shown = page(op, "/operator/reconciliation/")
    assert "Asked &lt;b&gt;Stripe&lt;/b&gt;." in shown
    assert "op@lab.example" in shown
    assert history(Difference, "note")[1:] == [("update", "Asked <b>Stripe</b>.")]

    scenario.stripe.dashboard.alter(intent["id"], amount=400)
    compare(scenario)
    assert "No differences" in words(page(op, "/operator/reconciliation/"))
    assert "Another amount Resolved" in words(page(op, "/operator/reconciliation/?state=resolved"))


def test_a_note_of_nothing_is_refused_in_a_sentence(scenario: Scenario, op: User) -> None:
    (intent,) = scenario.stripe.objects("payment_intent")
    scenario.stripe.dashboard.alter(intent["id"], amount=399)
    compare(scenario)
    answer = signed_in(op).post(
        "/operator/reconciliation/",
        {"act": "note", "difference": Difference.objects.get().pk, "note": " "},
        follow=True,
    )
    assert "Enter a note" in answer.content.decode()
    assert (
        signed_in(op).post("/operator/reconciliation/", {"act": "note", "difference": "77"}).status_code
        == 404
    )


def test_asking_for_a_comparison_is_a_row_of_the_outbox(scenario: Scenario, op: User) -> None:
    assert signed_in(op).post("/operator/reconciliation/", {"act": "run"}).status_code == 302
    row = OutboxMessage.objects.get(task="billing.tasks.request_reconciliation")
    assert row.kwargs == {"by": "op@lab.example"}


def test_a_payout_leads_to_its_invoices_on_the_page_and_as_csv(scenario: Scenario, op: User) -> None:
    compare(scenario)
    payout = GatewayPayout.objects.get()
    text = words(page(op, f"/operator/reconciliation/payouts/{payout.pk}/"))
    assert "Payout of $3.58" in text
    assert "INV-2026-0001 Vision Lab" in text
    assert "Total $4.00 $0.42 $3.58" in text
    answer = signed_in(op).get(f"/operator/reconciliation/payouts/{payout.pk}/csv")
    (row,) = csv.DictReader(StringIO(answer.content.decode()))
    assert (row["invoice"], row["tenant"], row["amount"], row["fee"], row["net"], row["currency"]) == (
        "INV-2026-0001",
        "vision-lab",
        "4.00",
        "0.42",
        "3.58",
        "USD",
    )
    assert signed_in(op).get("/operator/reconciliation/payouts/po_of_nobody/").status_code == 404


def test_the_night_s_run_is_due_once_a_night(scenario: Scenario) -> None:
    def due(text: str) -> bool:
        return reconciliation_run.is_due(moment=datetime.fromisoformat(text).replace(tzinfo=UTC))

    assert due("2026-04-23 09:10")
    compare(scenario)  # at 09:00
    assert not due("2026-04-23 09:10")
    assert not due("2026-04-24 01:50")
    assert due("2026-04-24 02:00")


def test_what_differs_is_told_to_the_monitoring(scenario: Scenario) -> None:
    def metrics_text() -> str:
        return exposed(accept="", moment=scenario.now)[0].decode()

    assert 'clustertab_reconciliation_age_seconds{service="stripe"} +Inf' in metrics_text()
    (intent,) = scenario.stripe.objects("payment_intent")
    scenario.stripe.dashboard.alter(intent["id"], amount=399)
    compare(scenario)
    scenario.wait(minutes=2)
    assert 'clustertab_reconciliation_differences{kind="amount"} 1.0' in metrics_text()
    assert 'clustertab_reconciliation_age_seconds{service="stripe"} 120.0' in metrics_text()
