"""The balance that the database shows of an invoice says what the rules of the code say."""

from __future__ import annotations

import pytest
from django.db import connection
from pytest_django import DjangoAssertNumQueries

from billing.models import UNDER_WAY, AttemptState, Invoice, PaymentAttempt
from billing.proof import checks
from tests.collecting import Scenario

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("page_used", [False, True])
@pytest.mark.parametrize("state", AttemptState.values)
def test_money_may_yet_come_by_the_attempts_that_the_model_calls_under_way(
    scenario: Scenario, state: str, page_used: bool
) -> None:
    PaymentAttempt.objects.create(
        tenant=scenario.invoice.tenant,
        invoice=scenario.invoice,
        amount=400,
        currency="USD",
        state=state,
        page_used=page_used,
        external_id="pi_1",
        created_at=scenario.now,
    )
    by_model = PaymentAttempt.objects.filter(UNDER_WAY, invoice=scenario.invoice).exists()
    assert Invoice.objects.unpaid().get().balance.under_way is by_model


def test_balances_are_read_with_their_invoices_in_one_query(
    scenario: Scenario, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    with django_assert_num_queries(1):
        assert [(row.balance.left, row.balance.received) for row in Invoice.objects.unpaid()] == [(400, 0)]
    assert not Invoice.objects.overpaid().exists()


def test_the_proof_names_an_invoice_of_which_sums_take_something_else(scenario: Scenario) -> None:
    assert checks.prove().holds
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE TEMP VIEW billing_invoiceremainder AS "  # found before the other
            'SELECT invoice_id, "left" + 1 AS "left" FROM billing_invoicebalance'
        )
    broken = {check.name: check.broken for check in checks.prove().checks if check.broken}
    assert broken == {
        "sums over all invoices take of each what its balance says": [
            f"invoice {scenario.invoice.number} of vision-lab"
        ]
    }
