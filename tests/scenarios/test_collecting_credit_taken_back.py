"""Credit that was bought and paid goes again with its money: refunded, disputed, spent already or not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import connection

from billing.models import (
    AutomaticTopUp,
    PaymentAttempt,
    TopUp,
    Wallet,
    WalletEntry,
    WalletGrant,
    WalletScope,
)
from billing.payments import automatic, charge_attempts
from billing.proof import checks
from billing.reconciliation import reconciliation_run
from billing.rules.money import Money
from billing.wallets import grants, wallet_holds, wallet_terms
from tests.collecting import Scenario, a_scenario, a_top_up
from tests.owner import as_owner

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def scenario() -> Iterator[Scenario]:
    """Ann has bought 50.00 of credit with her card."""
    with a_scenario() as scenario:
        card = scenario.save_card()
        wallet_terms.set_scheme(
            tenant=scenario.lab, unit="USD", scope=WalletScope.TENANT, overdraft=0, since=scenario.now
        )
        attempt = a_top_up(card, Wallet.objects.get(), 50_00, now=scenario.now)
        charge_attempts.follow_attempt(attempt=attempt, gateway=scenario.gateway, moment=scenario.now)
        scenario.lab.billing_account.automatic = False
        scenario.lab.billing_account.save()
        yield scenario
        assert scenario.stripe.violations == []
        broken = [
            sentence for check in checks.prove().checks if "wallet" in check.name for sentence in check.broken
        ]
        assert broken == []


def balance() -> str:
    wallet = Wallet.objects.get()
    return Money.from_minor(wallet.balance, "USD").text


def left_of_grants() -> int:
    """The balance and the debt together, in cents."""
    return sum(WalletGrant.objects.values_list("left", flat=True))


def bought() -> str:
    return PaymentAttempt.objects.order_by("created_at")[0].external_id or ""


def spent(scenario: Scenario, amount: int) -> None:
    wallet_holds.spend(wallet=Wallet.objects.get(), amount=amount, moment=scenario.now, memo="A reservation")


def test_what_was_bought_is_credited_and_what_is_refunded_is_not(scenario: Scenario) -> None:
    assert balance() == "50.00"
    scenario.stripe.dashboard.refund(bought(), 20_00)
    for _ in range(2):
        scenario.collect()
    assert balance() == "30.00"
    assert WalletEntry.objects.filter(memo__endswith="given back", side="balance").count() == 1


def test_an_inquiry_leaves_what_was_bought_and_takes_it_only_as_a_dispute(scenario: Scenario) -> None:
    inquiry = scenario.stripe.dashboard.inquire(bought())
    scenario.collect()
    assert balance() == "50.00"
    scenario.stripe.dashboard.escalate_inquiry(inquiry)
    for _ in range(2):
        scenario.collect()
    assert balance() == "0.00"
    scenario.stripe.dashboard.win_dispute(inquiry)
    scenario.collect()
    assert balance() == "50.00"


def test_what_was_spent_already_leaves_a_debt_that_the_next_credit_pays(scenario: Scenario) -> None:
    spent(scenario, 40_00)
    scenario.stripe.dashboard.refund(bought())
    scenario.collect()
    assert balance() == "-40.00"
    grants.grant(wallet=Wallet.objects.get(), amount=100_00, key="gift", who="op", moment=scenario.now)
    assert balance() == "60.00"


def test_a_refund_that_comes_back_is_credited_again_once(scenario: Scenario) -> None:
    spent(scenario, 40_00)
    refund = scenario.stripe.dashboard.refund(bought())
    scenario.collect()
    assert balance() == "-40.00"
    scenario.stripe.dashboard.fail_refund(refund)
    for _ in range(2):
        scenario.collect()
    assert balance() == "10.00"
    assert left_of_grants() == 10_00


def test_a_disputed_top_up_cannot_be_spent_and_a_dispute_that_is_won_gives_it_back(
    scenario: Scenario,
) -> None:
    spent(scenario, 10_00)
    dispute = scenario.stripe.dashboard.dispute(bought())
    scenario.collect()
    assert balance() == "-10.00"
    scenario.stripe.dashboard.win_dispute(dispute)
    for _ in range(2):
        scenario.collect()
    assert balance() == "40.00"


def test_a_dispute_that_is_lost_takes_the_credit_once(scenario: Scenario) -> None:
    dispute = scenario.stripe.dashboard.dispute(bought())
    scenario.collect()
    scenario.stripe.dashboard.lose_dispute(dispute)
    scenario.collect()
    assert balance() == "0.00"


def test_other_credit_is_untouched_but_for_what_is_below_zero(scenario: Scenario) -> None:
    grants.grant(wallet=Wallet.objects.get(), amount=30_00, key="gift", who="op", moment=scenario.now)
    scenario.stripe.dashboard.refund(bought())
    scenario.collect()
    assert (balance(), left_of_grants()) == ("30.00", 30_00)


def test_case_090_a_top_up_that_the_database_forgot_is_credited_again_and_not_charged(
    scenario: Scenario,
) -> None:
    """A backup from before it was bought: the wallet is there, what was bought is not."""
    name = bought()
    with as_owner() as cursor:
        for table in ("walletentry", "paymentattempt"):
            cursor.execute(f"ALTER TABLE billing_{table} DISABLE TRIGGER USER")
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM billing_walletentry")
        cursor.execute("DELETE FROM billing_walletgrant")
        cursor.execute("UPDATE billing_wallet SET balance = 0")
        cursor.execute("DELETE FROM billing_paymentattempt")
        cursor.execute("DELETE FROM billing_topup")
    with as_owner() as cursor:
        for table in ("walletentry", "paymentattempt"):
            cursor.execute(f"ALTER TABLE billing_{table} ENABLE TRIGGER USER")
    assert balance() == "0.00"
    assert (
        reconciliation_run.run(gateway=scenario.gateway, moment=scenario.now, by="op").counts["adopted"] == 1
    )
    scenario.collect()
    assert (balance(), bought(), scenario.charged) == ("50.00", name, [50_00])
    assert TopUp.objects.get().requested_by == "found at the gateway"


@pytest.mark.parametrize("how", ["refund", "dispute"])
def test_what_was_given_back_is_not_bought_again_by_itself_until_it_is_set_anew(
    scenario: Scenario, how: str
) -> None:
    def set_rule() -> None:
        automatic.set_rule(
            wallet=Wallet.objects.get(),
            active=True,
            below=20_00,
            amount=50_00,
            most=200_00,
            by="ann@vision.example",
            moment=scenario.now,
        )

    set_rule()
    getattr(scenario.stripe.dashboard, how)(bought())
    for _ in range(3):
        scenario.wait(minutes=1)
        scenario.collect()
    assert (balance(), scenario.charged) == ("0.00", [50_00])
    stand = automatic.check_readiness(AutomaticTopUp.objects.get(), moment=scenario.now)
    assert stand.stopped.startswith("Stopped: credit that was bought was given back")
    scenario.wait(minutes=1)
    set_rule()
    scenario.collect()
    assert (balance(), scenario.charged) == ("50.00", [50_00, 50_00])
