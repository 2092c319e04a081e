"""Cards that their network renewed: as good as new ones."""

from __future__ import annotations

import pytest

from billing.models import MethodState, PaymentAttempt, SavedMethod
from billing.payments import saved_methods
from tests.collecting import Scenario

pytestmark = pytest.mark.django_db(transaction=True)

DECLINED, EXPIRED, GOOD = "4000000000000341", "4000000000000069", "4242424242424242"


def renewed(scenario: Scenario, card: SavedMethod) -> None:
    scenario.stripe.dashboard.renew_card(card.external_id, month=1, year=2040, last4="4242")
    scenario.stripe.dashboard.behave(card.external_id, GOOD)


def saved_cards() -> list[tuple[str, bool]]:
    return list(SavedMethod.objects.order_by("pk").values_list("state", "preferred"))


def test_collecting_case_29_an_expired_card_that_its_network_renewed_is_charged(scenario: Scenario) -> None:
    card = scenario.save_card(EXPIRED)
    scenario.collect()
    assert (scenario.states, saved_cards()) == (["failed"], [("refused", False)])
    scenario.wait(minutes=20)
    renewed(scenario, card)
    scenario.collect()
    card.refresh_from_db()
    assert (card.state, card.preferred, card.exp_year, card.last4) == ("usable", True, 2040, "4242")
    assert (scenario.states, scenario.charged, scenario.paid) == (["failed", "succeeded"], [400], "4.00")
    scenario.books_agree()


def test_collecting_case_29_a_renewed_card_does_not_push_the_one_aside_that_took_its_place(
    scenario: Scenario,
) -> None:
    card = scenario.save_card(EXPIRED)
    scenario.collect()
    scenario.save_card(DECLINED)
    scenario.wait(minutes=20)
    renewed(scenario, card)
    scenario.collect()
    assert saved_cards() == [("usable", False), ("usable", True)]


def test_a_refusal_from_before_the_card_was_renewed_does_not_end_the_renewed_one(scenario: Scenario) -> None:
    """The network renews the card between the charge and the moment that its answer is taken over."""
    card = scenario.save_card(EXPIRED)
    tried = scenario.now
    scenario.wait(minutes=1)
    renewed(scenario, card)
    saved_methods.save_method(
        tenant=scenario.lab, method=scenario.gateway.find_method(card.external_id), moment=scenario.now
    )
    saved_methods.set_state(card.external_id, MethodState.REFUSED, tried=tried)
    assert saved_cards() == [("usable", True)]
    saved_methods.set_state(card.external_id, MethodState.REFUSED, tried=scenario.now)
    assert saved_cards() == [("refused", False)]


def test_a_card_that_was_declined_and_then_renewed_is_tried_at_once(scenario: Scenario) -> None:
    card = scenario.save_card(DECLINED)
    scenario.collect()
    scenario.wait(hours=1)
    renewed(scenario, card)
    scenario.collect()
    assert (scenario.states, scenario.charged) == (["failed", "succeeded"], [400])
    assert PaymentAttempt.objects.latest("created_at").created_at == scenario.now
