"""Ann buys credit for her wallet: by page, with her card, and by itself when it runs low. Never twice."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from datetime import datetime

import pytest
from django.db import connection

from billing.models import (
    AttemptState,
    AutomaticTopUp,
    CheckoutSession,
    EntrySide,
    GrantKind,
    PaymentAttempt,
    TopUp,
    Wallet,
    WalletScope,
)
from billing.payments import automatic, customers, top_ups
from billing.payments.checkout_sessions import ReturnUrls
from billing.payments.gateway_access import CollectionError
from billing.reconciliation import reconciliation_run
from billing.rules.wallet import Piece
from billing.wallets import entries, grants, replay, wallet_terms
from billing.wallets.entries import Booking
from billing.wallets.replay import Change
from portal.dev.stripe_sandbox import currencies
from tests.builders import at
from tests.collecting import Scenario, a_scenario
from tests.history import history

pytestmark = pytest.mark.django_db(transaction=True)

BACK = ReturnUrls("https://tab.example/back/", "https://tab.example/")
DECLINED, ASKS = "4000000000000341", "4000002760003184"


@pytest.fixture
def scenario() -> Iterator[Scenario]:
    with a_scenario() as scenario:
        wallet_terms.set_scheme(
            tenant=scenario.lab, unit="USD", scope=WalletScope.TENANT, overdraft=0, since=at("2026-03-01")
        )
        yield scenario
        assert scenario.stripe.violations == []


def wallet() -> Wallet:
    return Wallet.objects.select_related("tenant", "project").get()


def balance() -> int:
    return wallet().balance


def spend(amount: int, moment: datetime) -> None:
    """So much is used of the wallet."""
    from django.db import transaction

    with transaction.atomic():
        row = entries.locked([wallet().pk])[wallet().pk]
        used = Booking([Piece(None, -amount)], EntrySide.SPENT, moment, memo="Use", day=moment.date())
        replay.settle(wallet=row, moment=moment, change=Change(bookings=[used], since=moment.date()))


def rule(scenario: Scenario, *, below: int = 1000, amount: int = 2000, most: int = 10_000) -> AutomaticTopUp:
    return automatic.set_rule(
        wallet=wallet(), active=True, below=below, amount=amount, most=most, by="ann", moment=scenario.now
    )


def charge(scenario: Scenario, amount: int = 5000, key: uuid.UUID | None = None) -> PaymentAttempt:
    return top_ups.charge_top_up(
        wallet=wallet(),
        amount=amount,
        key=key or uuid.uuid4(),
        gateway=scenario.gateway,
        back=BACK,
        who="ann",
        moment=scenario.now,
    )


def bought(scenario: Scenario) -> list[int]:
    """What was charged for top-ups there, oldest first."""
    intents = [
        intent for intent in scenario.stripe.objects("payment_intent") if intent["status"] == "succeeded"
    ]
    return [intent["amount"] for intent in intents if intent["metadata"].get("ct_kind") == "topup"]


def test_case_069_a_form_that_is_sent_twice_and_events_that_come_twice_credit_once(
    scenario: Scenario,
) -> None:
    scenario.save_card()
    key = uuid.uuid4()
    charge(scenario, key=key)
    charge(scenario, key=key)
    for _ in range(3):
        scenario.collect()
    assert (bought(scenario), balance()) == ([5000], 5000)
    with pytest.raises(CollectionError, match="sent before with another amount"):
        charge(scenario, amount=6000, key=key)


def test_what_was_bought_counts_as_booked_beside_what_was_charged(scenario: Scenario) -> None:
    scenario.save_card()
    charge(scenario)
    scenario.collect()
    row = reconciliation_run.run(gateway=scenario.gateway, moment=scenario.now, by="op")
    # Beside an invoice of 4.00.
    assert (row.counts["opened"], row.sums["USD"]["charged"], row.sums["USD"]["booked"]) == (0, 5400, 5400)


def test_case_070_a_top_up_that_is_refused_credits_nothing(scenario: Scenario) -> None:
    scenario.save_card(DECLINED)
    assert charge(scenario).state == AttemptState.FAILED
    scenario.collect()
    assert (bought(scenario), balance()) == ([], 0)


def test_a_top_up_whose_answer_is_lost_is_credited_once_when_it_is_found(scenario: Scenario) -> None:
    from billing.payments.gateways.base import GatewayError

    scenario.save_card()
    scenario.stripe.faults.drop_answer("POST /v1/payment_intents")
    with pytest.raises(GatewayError):
        charge(scenario)
    assert balance() == 0
    scenario.collect()
    assert (bought(scenario), balance()) == ([5000], 5000)


def test_on_the_payment_page_credit_comes_when_it_was_paid(scenario: Scenario) -> None:
    key = uuid.uuid4()

    def page() -> CheckoutSession:
        return top_ups.open_page(
            wallet=wallet(),
            amount=5000,
            key=key,
            gateway=scenario.gateway,
            back=BACK,
            who="ann",
            moment=scenario.now,
        )

    link = page()
    assert page().pk == link.pk
    assert balance() == 0
    scenario.stripe.dashboard.pay(link.external_id or "")
    scenario.wait(minutes=15)
    scenario.collect()
    scenario.collect()
    assert balance() == 5000
    with pytest.raises(CollectionError, match="used or closed"):
        page()


@pytest.mark.parametrize(
    ("amount", "sentence"),
    [(49, "below the smallest"), (100_000_000, "below the smallest or above the largest")],
)
def test_amounts_that_cannot_be_charged_are_refused(scenario: Scenario, amount: int, sentence: str) -> None:
    scenario.save_card()
    with pytest.raises(CollectionError, match=sentence):
        charge(scenario, amount=amount)
    assert not TopUp.objects.exists()


def test_case_071_below_its_mark_a_wallet_is_topped_up_once(scenario: Scenario) -> None:
    scenario.save_card()
    charge(scenario, amount=3000)
    rule(scenario)
    scenario.collect()
    assert bought(scenario) == [3000]  # above its mark
    spend(2500, scenario.now)
    scenario.collect()
    scenario.collect()
    assert (bought(scenario), balance()) == ([3000, 2000], 2500)
    spend(2000, scenario.now)
    scenario.collect()
    assert (bought(scenario), balance()) == ([3000, 2000, 2000], 2500)


def test_case_071_while_its_payment_takes_days_no_other_is_made() -> None:
    with a_scenario(currency="EUR") as scenario:
        wallet_terms.set_scheme(
            tenant=scenario.lab, unit="EUR", scope=WalletScope.TENANT, overdraft=0, since=at("2026-03-01")
        )
        scenario.save_account()
        rule(scenario)
        for _ in range(3):
            scenario.collect()
            scenario.wait(seconds=1)
        tried = PaymentAttempt.objects.filter(top_up__isnull=False)
        assert [attempt.state for attempt in tried] == ["processing"]
        assert balance() == 0
        scenario.wait(days=5)
        for _ in range(2):
            scenario.collect()
        assert [attempt.state for attempt in tried.all()] == ["succeeded"]
        assert balance() == 2000
        assert scenario.stripe.violations == []


def test_a_top_up_that_is_not_enough_is_followed_by_the_next_up_to_the_most_of_a_month(
    scenario: Scenario,
) -> None:
    scenario.save_card()
    charge(scenario, amount=100)
    spend(9000, scenario.now)
    rule(scenario, amount=2000, most=5000)
    for _ in range(5):
        scenario.collect()
    assert (bought(scenario), balance()) == ([100, 2000, 2000], -4900)
    stand = automatic.check_readiness(AutomaticTopUp.objects.get(), moment=scenario.now)
    assert stand.full == "This month's 50.00 USD are bought: it goes on next month."
    scenario.wait(days=12)  # it is May
    scenario.collect()
    assert balance() == -2900


def test_a_refusal_stops_it_until_another_card_is_there(scenario: Scenario) -> None:
    scenario.save_card(DECLINED)
    rule(scenario)
    scenario.collect()
    scenario.wait(days=2)
    scenario.collect()
    assert PaymentAttempt.objects.filter(top_up__isnull=False).count() == 1
    stand = automatic.check_readiness(AutomaticTopUp.objects.get(), moment=scenario.now)
    assert stand.stopped.startswith("Stopped: Your card was declined. It goes on with another card")

    scenario.save_card()
    scenario.collect()
    scenario.collect()
    assert (bought(scenario), balance()) == ([2000], 2000)
    assert TopUp.objects.count() == 1  # the same crossing


def test_a_card_that_asks_each_time_stops_it_and_setting_it_anew_tries_again(scenario: Scenario) -> None:
    scenario.save_card(ASKS)
    rule(scenario)
    scenario.collect()
    scenario.collect()
    assert PaymentAttempt.objects.filter(top_up__isnull=False).count() == 1
    scenario.wait(hours=1)
    rule(scenario)
    scenario.collect()
    assert PaymentAttempt.objects.filter(top_up__isnull=False).count() == 2


def test_turned_off_nothing_is_bought_not_even_what_was_about_to_be_sent(scenario: Scenario) -> None:
    scenario.save_card()
    top_up_rule = rule(scenario)
    customer = customers.get_customer(scenario.lab, gateway=scenario.gateway, moment=scenario.now)
    assert automatic.prepare_top_up(rule=top_up_rule, customer=customer, moment=scenario.now) is not None
    automatic.turn_off(wallet=wallet(), by="ann", moment=scenario.now)
    scenario.collect()
    assert (bought(scenario), balance()) == ([], 0)
    assert [attempt.state for attempt in PaymentAttempt.objects.filter(top_up__isnull=False)] == ["canceled"]
    assert history(AutomaticTopUp, "active") == [("insert", True), ("update", False)]


def test_a_wallet_that_was_filled_meanwhile_is_not_topped_up(scenario: Scenario) -> None:
    """The top-up waits for a worker; a transfer fills the wallet before one comes."""
    scenario.save_card()
    top_up_rule = rule(scenario)
    customer = customers.get_customer(scenario.lab, gateway=scenario.gateway, moment=scenario.now)
    assert automatic.prepare_top_up(rule=top_up_rule, customer=customer, moment=scenario.now) is not None
    grants.grant(
        wallet=wallet(),
        amount=100_000,
        key="transfer 1",
        who="Vision Lab",
        moment=scenario.now,
        why="Top-up by transfer",
        kind=GrantKind.TOP_UP,
    )
    scenario.collect()
    assert (bought(scenario), balance()) == ([], 100_000)
    assert [attempt.state for attempt in PaymentAttempt.objects.filter(top_up__isnull=False)] == ["canceled"]


def test_an_amount_that_only_stripe_finds_too_small_is_not_asked_for_each_minute(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The account settles in another currency, whose smallest charge comes to 30.00 USD."""
    monkeypatch.setitem(currencies.LEAST, "usd", 3000)
    scenario.save_card()
    top_up_rule = rule(scenario)
    for _ in range(3):
        scenario.collect()
        scenario.wait(minutes=1)
    tried = PaymentAttempt.objects.filter(top_up__isnull=False)
    assert list(tried.values_list("state", "code")) == [("canceled", "amount_too_small")]
    assert automatic.check_readiness(top_up_rule, moment=scenario.now).stopped == (
        "Stopped: Stripe: Amount must be at least 30.00 USD. "
        "It is tried again after a day, or when you set another amount."
    )
    rule(scenario, amount=4000)  # Ann sees it, and buys more at once
    scenario.collect()
    assert (bought(scenario), balance()) == ([4000], 4000)


@pytest.mark.parametrize("fault", ["drop_answer", "cut_before", "server_error"])
def test_case_071_a_kill_or_a_lost_answer_buys_once(scenario: Scenario, fault: str) -> None:
    scenario.save_card()
    rule(scenario)
    getattr(scenario.stripe.faults, fault)("POST /v1/payment_intents")
    for _ in range(4):
        scenario.collect()
    assert (bought(scenario), balance()) == ([2000], 2000)


def test_case_071_two_at_once_buy_once(scenario: Scenario) -> None:
    scenario.save_card()
    top_up_rule = rule(scenario)
    customer = customers.get_customer(scenario.lab, gateway=scenario.gateway, moment=scenario.now)
    troubles: list[BaseException] = []
    barrier = threading.Barrier(6)

    def work() -> None:
        try:
            barrier.wait()
            automatic.prepare_top_up(rule=top_up_rule, customer=customer, moment=scenario.now)
        except BaseException as error:  # noqa: BLE001 - told below
            troubles.append(error)
        finally:
            connection.close()

    for _ in range(5):
        threads = [threading.Thread(target=work) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        barrier.reset()
        scenario.collect()
    assert troubles == []
    assert (bought(scenario), balance(), TopUp.objects.count()) == ([2000], 2000, 1)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"amount": 10}, "below the smallest"),
        ({"most": 1999}, "leaves room for no top-up"),
        ({"below": -1}, "zero or more"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(
    scenario: Scenario, options: dict[str, int], sentence: str
) -> None:
    with pytest.raises(CollectionError, match=sentence):
        rule(scenario, **options)
