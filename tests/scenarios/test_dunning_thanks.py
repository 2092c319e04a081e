"""Letters of thanks: for what was paid, and whoever else pays."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from typing import Any

import pytest

from billing import collection, writing_off
from billing.dunning import letters, policies, rounds
from billing.models import Letter
from billing.rules.money import Money
from portal.tenants.models import Tenant
from tests import stories
from tests.builders import at
from tests.collecting import Counter, a_counter, more_labs

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def counter() -> Iterator[Counter]:
    with a_counter(now=at("2026-04-15 09:00")) as found:
        yield found


def pays(lab: Tenant, amount: str, counter: Counter) -> None:
    collection.record_payment(
        invoice=stories.invoice_of(lab, "2026-03"),
        amount=Money.of(amount, "USD"),
        received_on=counter.now.date(),
        reference="SEPA 1",
        recorded_by="op",
    )


def thanked() -> list[Any]:
    return list(Letter.objects.filter(kind="paid").values_list("tenant__slug", flat=True))


def test_nobody_is_thanked_for_what_was_given_up(counter: Counter) -> None:
    policies.set_policy(tenant=None, since=date(2026, 1, 1), thanks=True)
    pays(counter.lab, "1.00", counter)
    writing_off.write_off(invoice=counter.invoice, why="insolvent", by="op", on=counter.now.date())
    rounds.run(moment=counter.now)
    assert thanked() == []
    pays(counter.lab, "3.00", counter)  # it comes after all
    rounds.run(moment=counter.now)
    assert thanked() == ["vision-lab"]


def test_a_tenant_is_thanked_however_many_others_pay_who_are_not(
    counter: Counter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(letters, "BATCH", 1)
    labs = more_labs(counter, ["acme", "bolt", "coda"])
    for lab in (counter.lab, labs[-1]):
        policies.set_policy(tenant=lab, since=date(2026, 1, 1), thanks=True)
    for lab in [counter.lab, *labs]:
        pays(lab, "4.00", counter)
    for _ in range(3):
        rounds.run(moment=counter.now)
    assert sorted(thanked()) == ["coda", "vision-lab"]
