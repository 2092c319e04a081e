"""One refunds to the card while another records a transfer of the same money: it goes back once."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from django.db import connection, transaction

from billing.models import Invoice, Payment, PaymentRefund
from billing.payments import refunds_due
from billing.payments.gateway_access import CollectionError
from billing.receivables import manual_payments
from billing.receivables.settlement import PaymentError
from billing.rules.money import Money
from portal.sentences import sentence
from tests.collecting import Scenario, a_scenario, credited

pytestmark = pytest.mark.usefixtures("transactional_db")

PATIENCE = 60  # seconds
GivesBack = Callable[[Scenario], str]
WAITING = """
SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND cardinality(pg_blocking_pids(pid)) > 0
"""


def refund(scenario: Scenario) -> str:
    return refunds_due.refund_to_card(invoice=scenario.invoice, who="op", moment=scenario.now).text


def transfer(scenario: Scenario) -> str:
    payment = refunds_due.record_transfer(
        invoice=scenario.invoice, reference="SEPA-1", who="eva", on=scenario.now.date()
    )
    return str(payment.amount)


def by_hand(scenario: Scenario) -> str:
    transfer = manual_payments.record_transfer(
        invoice=scenario.invoice, amount=Money.of("-3.00", "USD"), received_on=scenario.now.date(), reference="SEPA-1",
        recorded_by="eva", at=scenario.now,
    )  # fmt: skip
    return str(transfer.payment.amount)


@pytest.mark.parametrize(
    ("first", "second"), [(refund, transfer), (transfer, refund), (refund, by_hand), (by_hand, refund)]
)
def test_money_that_one_gives_back_while_another_does_goes_back_once(
    first: GivesBack, second: GivesBack, database_url: str
) -> None:
    """4.00 were paid and 3.00 credited. The second one begins before the first has committed, and is refused."""
    with a_scenario() as scenario:
        scenario.save_card()
        scenario.collect()
        credited(scenario, "3.00")

        def work() -> str:
            try:
                return str(second(scenario))
            except (CollectionError, PaymentError) as error:
                return sentence(error)
            finally:
                connection.close()

        with ThreadPoolExecutor(1) as pool:
            with transaction.atomic():
                first(scenario)
                result = pool.submit(work)
                wait_until_blocked(result, database_url)
            refusal = "A refund of 3.00 USD of" if second is by_hand else "Nothing of"
            assert result.result(PATIENCE).startswith(f"{refusal} INV-2026-0001")

        scenario.collect()
        assert scenario.paid == "1.00"
        assert not Invoice.objects.overpaid().exists()
        assert Payment.objects.filter(amount__lt=0).count() == 1
        assert PaymentRefund.objects.count() == (first is refund)
        assert scenario.stripe.violations == []


def wait_until_blocked(work: Future[Any], database_url: str) -> None:
    deadline = time.monotonic() + PATIENCE
    with psycopg.connect(database_url, autocommit=True) as observer:
        while observer.execute(WAITING).fetchone() != (1,):
            assert not work.done(), work.result()
            assert time.monotonic() < deadline
            time.sleep(0.01)
