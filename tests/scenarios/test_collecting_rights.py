"""A restricted key that lacks a right: Op is told which, and nothing is changed by asking."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from billing.models import GatewayAccount
from billing.payments import gateway_access
from portal import env
from portal.dev.stripe_sandbox.keys import PORTAL_RIGHTS
from portal.env_variables import SettingError
from tests.collecting import Scenario, a_scenario

pytestmark = pytest.mark.django_db(transaction=True)

NAMED = {
    "rak_balance_read": "Balance: read",
    "rak_payout_read": "Payouts: read",
    "rak_event_read": "Events: read",
    "rak_dispute_read": "Disputes: read",
    "rak_customer_write": "Customers: write",
    "rak_payment_method_write": "PaymentMethods: write",
    "rak_payment_intent_write": "PaymentIntents: write",
    "rak_setup_intent_write": "SetupIntents: write",
    "rak_checkout_session_write": "Checkout Sessions: write",
    "rak_charge_write": "Charges and Refunds: write",
}


@pytest.fixture
def scenario(settings: object) -> Iterator[Scenario]:
    with a_scenario() as scenario:
        yield scenario


def restricted(scenario: Scenario, settings: object, lacking: str = "") -> None:
    """The key is replaced by a restricted one without that right."""
    gateway_access.get_gateway_account()  # has collected before
    key = scenario.stripe.keys.restrict(f"rk_test_without_{lacking or 'nothing'}", PORTAL_RIGHTS - {lacking})
    settings.STRIPE_SECRET_KEY = key  # type: ignore[attr-defined]


def test_a_key_with_the_rights_of_the_docs_lacks_nothing(scenario: Scenario, settings: object) -> None:
    restricted(scenario, settings)
    assert list(scenario.gateway.missing_rights(key=gateway_access.idempotency_key("rights", "1"))) == []


@pytest.mark.parametrize("lacking", NAMED)
def test_each_right_that_is_missing_is_named(scenario: Scenario, settings: object, lacking: str) -> None:
    restricted(scenario, settings, lacking)
    missing = list(scenario.gateway.missing_rights(key=gateway_access.idempotency_key("rights", "1")))
    assert NAMED[lacking] in missing
    assert set(missing) <= {NAMED[lacking], "Balance transactions: read"}
    assert [
        resource for kind in scenario.stripe.state.data.objects for resource in scenario.stripe.objects(kind)
    ] == [resource for kind in ("webhook_endpoint", "event") for resource in scenario.stripe.objects(kind)]
    assert scenario.stripe.violations == []


def test_a_round_that_lacks_a_right_stops_says_which_and_goes_on_once_it_has_it(
    scenario: Scenario, settings: object
) -> None:
    scenario.save_card()
    restricted(scenario, settings, "rak_payment_intent_write")
    scenario.collect()
    assert gateway_access.is_locked_out()
    assert GatewayAccount.objects.get().lockout_reason == (
        "The key of Stripe may not read payment intents: docs/how-to/go-live-with-stripe.md lists what it needs."
    )
    scenario.collect()
    assert GatewayAccount.objects.get().lockout_reason == (
        "The key of Stripe lacks rights: PaymentIntents: write; docs/how-to/go-live-with-stripe.md lists them."
    )
    assert "failed" not in scenario.states
    restricted(scenario, settings)
    scenario.collect()
    assert (scenario.charged, scenario.states) == ([400], ["succeeded"])
    scenario.books_agree()


def test_case_085_a_database_that_collected_in_one_mode_refuses_a_key_of_the_other(
    scenario: Scenario, settings: object
) -> None:
    scenario.save_card()
    settings.STRIPE_SECRET_KEY = "sk_live_sandbox"  # type: ignore[attr-defined]
    with pytest.raises(
        gateway_access.CollectionError, match="has collected in test mode, and the key is a live one"
    ):
        scenario.collect()
    assert scenario.charged == []


@pytest.mark.parametrize(
    ("key", "mode", "sentence"),
    [
        ("sk_live_abc", "test", "STRIPE_SECRET_KEY is a live key, but STRIPE_MODE is test"),
        ("rk_test_abc", "live", "STRIPE_SECRET_KEY is a test key"),
        ("pk_live_abc", "live", "STRIPE_SECRET_KEY is no secret key"),
    ],
)
def test_case_085_a_key_of_the_other_mode_is_refused_at_the_start_and_not_repeated(
    key: str, mode: str, sentence: str
) -> None:
    with pytest.raises(SettingError, match=sentence) as refused:
        env.read({"STRIPE_SECRET_KEY": key, "STRIPE_MODE": mode})
    assert key not in str(refused.value)
