"""Who is charged when more is due than one round can charge."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from billing.models import PaymentAttempt, Plan
from billing.payments import chargeable_invoices, checkout_sessions, collection_run
from portal.core.tenants.models import Tenant
from tests import stories
from tests.builders import a_cluster, a_job, a_tenant, ingest
from tests.collecting import Scenario, a_scenario

pytestmark = pytest.mark.django_db(transaction=True)

BACK = checkout_sessions.ReturnUrls(
    completed="https://bills.example/back/", canceled="https://bills.example/invoice/"
)


@pytest.fixture
def scenario(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scenario]:
    """One invoice a round."""
    monkeypatch.setattr(collection_run, "AT_ONCE", 1)
    with a_scenario() as scenario:
        yield scenario


def another(scenario: Scenario, name: str, *, until: str) -> Tenant:
    """A lab with a card, whose invoice of February is longer due than March's of the vision lab."""
    lab = a_tenant(name, plan=Plan.objects.get(), accounts=[(a_cluster(), name)])
    ingest(
        a_cluster(), a_job(account=name, started="2026-02-02 10:00", ended=until), as_of="2026-04-20 00:00"
    )
    stories.close("2026-02", lab, on="2026-03-01")
    scenario.lab, first = lab, scenario.lab
    scenario.save_card()
    scenario.lab = first
    return lab


def test_invoices_that_are_too_small_to_be_charged_keep_nobody_waiting(scenario: Scenario) -> None:
    tiny = another(scenario, "tiny-lab", until="2026-02-02 10:09")
    scenario.save_card()
    assert stories.total(stories.invoice_of(tiny, "2026-02")) == "0.30"
    scenario.collect()
    assert (scenario.charged, scenario.paid) == ([400], "4.00")
    scenario.books_agree()


def test_an_invoice_that_somebody_has_a_page_open_for_keeps_nobody_waiting(scenario: Scenario) -> None:
    slow = another(scenario, "slow-lab", until="2026-02-02 12:00")
    scenario.save_card()
    checkout_sessions.open_payment_page(
        invoice=stories.invoice_of(slow, "2026-02"),
        gateway=scenario.gateway,
        back=BACK,
        who="sam",
        moment=scenario.now,
    )
    scenario.collect()
    assert (scenario.charged, scenario.paid) == ([400], "4.00")
    scenario.books_agree()


def test_an_amount_that_only_stripe_knows_to_be_too_small_is_asked_for_once_a_day(scenario: Scenario) -> None:
    scenario.save_card()
    scenario.collect()
    paid = PaymentAttempt.objects.get()
    another(scenario, "other-lab", until="2026-02-02 12:00")
    (due,) = chargeable_invoices.list_chargeable(moment=scenario.now, limit=9)
    PaymentAttempt.objects.create(
        tenant=due.invoice.tenant,
        invoice=due.invoice,
        amount=paid.amount,
        currency=paid.currency,
        state="canceled",
        code="amount_too_small",
        created_at=scenario.now,
    )
    scenario.wait(hours=23)
    assert chargeable_invoices.list_chargeable(moment=scenario.now, limit=9) == []
    scenario.wait(hours=2)
    assert len(chargeable_invoices.list_chargeable(moment=scenario.now, limit=9)) == 1
