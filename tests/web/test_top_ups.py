"""Ann tops her wallet up on its page, and says when it is to be done by itself; Ben only looks."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from django.test import Client

from billing.models import AutomaticTopUp, TopUp, Wallet, WalletScope
from billing.rules.references import creditor_reference, in_groups
from billing.wallets import wallet_terms
from portal.core.tenants.models import Role
from tests.builders import a_person, a_seller, an_operator, at
from tests.collecting import Scenario, a_scenario
from tests.web.house import signed_in
from tests.web.test_overview import words

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def scenario() -> Iterator[Scenario]:
    with a_scenario() as scenario:
        a_seller(iban="DE89370400440532013000")
        wallet_terms.set_scheme(
            tenant=scenario.lab, unit="USD", scope=WalletScope.TENANT, overdraft=0, since=at("2026-03-01")
        )
        yield scenario
        assert scenario.stripe.violations == []


@pytest.fixture
def ann(scenario: Scenario) -> Client:
    return signed_in(a_person(tenant=scenario.lab))


def path() -> str:
    return f"/t/vision-lab/wallets/{Wallet.objects.get().pk}/"


def shown(person: Client) -> str:
    return words(person.get(path()).content.decode())


def key(person: Client) -> str:
    match = re.search(r'name="key" value="([^"]+)"', person.get(path()).content.decode())
    assert match is not None
    return match[1]


def test_ann_charges_her_card_and_sees_what_came_of_it(scenario: Scenario, ann: Client) -> None:
    scenario.save_card()
    assert "Charge Visa ending in 4242" in shown(ann)
    form = {"amount": "50.00", "by": "card", "key": key(ann)}
    answer = ann.post(f"{path()}top-up/", form, follow=True)
    assert "$50.00 was credited." in words(answer.content.decode())
    ann.post(f"{path()}top-up/", form)  # sent twice
    text = shown(ann)
    assert "pi_" not in text
    assert "ann@vision.example Visa ending in 4242 Credited $50.00" in text
    assert Wallet.objects.get().balance == 5000


def test_a_refusal_is_told_with_its_reason(scenario: Scenario, ann: Client) -> None:
    scenario.save_card("4000000000000341")
    answer = ann.post(f"{path()}top-up/", {"amount": "50", "by": "card", "key": key(ann)}, follow=True)
    assert "Your card was declined." in words(answer.content.decode())
    assert "Refused Your card was declined. $50.00" in shown(ann)
    assert Wallet.objects.get().balance == 0


def test_on_the_payment_page_and_back(scenario: Scenario, ann: Client) -> None:
    answer = ann.post(f"{path()}top-up/", {"amount": "50.00", "by": "page", "key": key(ann)})
    assert answer.status_code == 303
    assert answer.headers["Location"].startswith(scenario.stripe.url)
    (session,) = scenario.stripe.objects("checkout.session")
    scenario.stripe.dashboard.pay(session["id"])
    back = ann.get(f"/t/vision-lab/payment/back/?session={session['id']}")
    assert back.headers["Location"] == path()
    assert "$50.00 was credited." in shown(ann)
    assert Wallet.objects.get().balance == 5000


UNREAD = "Write an amount of USD like 50.00."


@pytest.mark.parametrize(
    ("amount", "sentence"),
    [
        ("", UNREAD),
        ("0", "Write an amount above zero."),
        ("-5", "Write an amount above zero."),
        ("1.001", UNREAD),
        ("a lot", UNREAD),
        ("0.10", "That is below the smallest or above the largest amount that can be charged."),
        ("99999999999999999999", UNREAD),
    ],
)
def test_an_amount_that_cannot_be_meant_is_refused_in_a_sentence(
    scenario: Scenario, ann: Client, amount: str, sentence: str
) -> None:
    scenario.save_card()
    answer = ann.post(f"{path()}top-up/", {"amount": amount, "by": "card", "key": key(ann)}, follow=True)
    assert sentence in words(answer.content.decode())
    assert not TopUp.objects.exists()


def test_what_ann_typed_stays_in_the_form_that_refused_it(scenario: Scenario, ann: Client) -> None:
    answer = ann.post(
        f"{path()}top-up/", {"amount": "12,5 or so", "by": "page", "key": key(ann)}, follow=True
    )
    assert 'value="12,5 or so"' in answer.content.decode()
    rule = {"act": "on", "below": "10", "amount": "20 😀", "most": "a lot"}
    page = ann.post(f"{path()}automatic/", rule, follow=True).content.decode()
    assert all(f'value="{text}"' in page for text in ("10", "20 😀", "a lot"))
    assert 'value="12,5 or so"' not in page
    assert 'value="a lot"' not in ann.get(path()).content.decode()


def test_ann_sets_automatic_top_up_and_turns_it_off(scenario: Scenario, ann: Client) -> None:
    scenario.save_card()
    assert "Off: the wallet is topped up when somebody does so." in shown(ann)
    form = {"act": "on", "below": "10", "amount": "20", "most": "15"}
    answer = ann.post(f"{path()}automatic/", form, follow=True)
    assert "leaves room for no top-up" in words(answer.content.decode())
    ann.post(f"{path()}automatic/", form | {"most": "100"})
    assert "When less than $10.00 is left, $20.00 is bought, up to $100.00 in a month." in shown(ann)
    scenario.collect()
    assert "Automatic Visa ending in 4242 Credited $20.00" in shown(ann)
    ann.post(f"{path()}automatic/", {"act": "off"})
    assert not AutomaticTopUp.objects.get().active


def test_a_mark_beyond_all_bounds_is_refused_in_a_sentence(scenario: Scenario, ann: Client) -> None:
    beyond = {"act": "on", "below": f"1{'0' * 30}", "amount": "20", "most": f"1{'0' * 30}"}
    answer = ann.post(f"{path()}automatic/", beyond, follow=True)
    assert "Write an amount of USD like 50.00." in words(answer.content.decode())
    assert not AutomaticTopUp.objects.exists()


def test_the_page_says_why_it_does_not_go_on(scenario: Scenario, ann: Client) -> None:
    scenario.save_card("4000000000000341")
    ann.post(f"{path()}automatic/", {"act": "on", "below": "10", "amount": "20", "most": "100"})
    AutomaticTopUp.objects.update(set_at=scenario.now)  # the story is told in April
    scenario.collect()
    assert "Stopped: Your card was declined. It goes on with another card" in shown(ann)


def test_a_wallet_has_its_own_reference_for_transfers(scenario: Scenario, ann: Client) -> None:
    reference = in_groups(creditor_reference(f"WALLET{Wallet.objects.get().pk}"))
    assert f"Reference {reference} Account holder Northern Compute GmbH" in shown(ann)


def test_ben_reads_nothing_of_cards_nor_of_who_bought(scenario: Scenario, ann: Client) -> None:
    scenario.save_card("4000000000009995")
    ann.post(f"{path()}top-up/", {"amount": "50", "by": "card", "key": key(ann)})
    ann.post(f"{path()}automatic/", {"act": "on", "below": "10", "amount": "20", "most": "100"})
    AutomaticTopUp.objects.update(set_at=scenario.now)
    scenario.collect()
    page_text = shown(ann)
    assert (
        "ann@vision.example Visa ending in 9995 Refused Your card has insufficient funds. $50.00" in page_text
    )
    assert "Stopped: Your card has insufficient funds." in page_text
    text = shown(signed_in(a_person("ben@vision.example", scenario.lab, Role.MEMBER)))
    assert "When less than $10.00 is left, $20.00 is bought" in text
    assert "Automatic top-up Waits" in text
    assert "It waits: people who may pay see the reason." in text
    assert [word for word in ("9995", "ann@", "insufficient", "Top-ups by card") if word in text] == []
    op = shown(signed_in(an_operator()))
    assert "Visa ending in 9995 Refused" in op


def test_ben_sees_it_and_cannot_buy(scenario: Scenario) -> None:
    ben = signed_in(a_person("ben@vision.example", scenario.lab, Role.MEMBER))
    assert "can top it up here" in shown(ben)
    assert 'name="key"' not in ben.get(path()).content.decode()
    assert ben.post(f"{path()}top-up/", {"amount": "50"}).status_code == 404
