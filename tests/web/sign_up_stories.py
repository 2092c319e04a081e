"""Where people sign up by themselves: two plans are public, Dan has an account, and Fay waits for Op."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from allauth.account.models import EmailAddress
from django.core.cache import cache

from billing.catalog.public_plans import set_offer
from billing.models import Plan
from billing.payments import saved_methods
from billing.payments.gateways.base import Method
from billing.sign_up import departures, policy, requests
from billing.sign_up.policy import SignUpError, SignUpTerms, set_policy
from portal.core.tenants.models import Tenant, User
from tests import builders
from tests.web.house import House, signed_in

DAN = "dan@orbit.example"
SECRET = "a much longer secret"
ASK = {"act": "ask", "name": "Orbit  Robotics", "country": "de", "plan": "starter"}


def mail_reaches_people(settings: Any) -> None:
    """Without which nobody signs up; nobody has asked for anything in this hour."""
    settings.CLUSTERTAB_SENDS_MAIL, settings.PORTAL_URL = True, "https://tab.example"
    settings.ACCOUNT_EMAIL_VERIFICATION = "mandatory"
    cache.clear()  # the requests of one address are counted there


def op_offers_plans() -> User:
    """Who offers two public plans, and one that is not."""
    builders.a_seller()
    starter = builders.a_plan("starter", "EUR", settles="wallet")
    growth = builders.a_plan(
        "growth", "EUR", settles="wallet", prices=[("gpu-hour", {}, "1.50", builders.LONG_AGO)]
    )
    builders.a_plan("deal", "EUR")
    set_offer(plan=starter, public=True, starting_credit=Decimal(25))
    set_offer(plan=growth, public=True)
    return builders.an_operator()


def offer_plans(house: House) -> None:
    """Have the vision lab's plan be public, and two more: so Ann may choose."""
    for name, price in (("starter", "1.50"), ("growth", "1.00")):
        plan = builders.a_plan(name, "USD", prices=[("gpu-hour", {}, price, builders.LONG_AGO)])
        set_offer(plan=plan, public=True)
    set_offer(plan=Plan.objects.get(name="vision-deal"), public=True)


def a_newcomer(email: str = DAN) -> User:
    """With an address that is proved, in no tenant."""
    person = builders.a_person(email)
    EmailAddress.objects.create(user=person, email=email, verified=True, primary=True)
    return person


def open_the_house(house: House) -> User:
    """Have two plans be public, and the vision lab ask to leave; Dan, who may sign up, comes back."""
    builders.a_seller()
    starter = builders.a_plan(
        "starter", "USD", settles="wallet", prices=[("gpu-hour", {}, "1.50", builders.LONG_AGO)]
    )
    set_offer(plan=starter, public=True, starting_credit=Decimal(25))
    set_offer(plan=Plan.objects.get(name="vision-deal"), public=True)
    set_policy(terms=SignUpTerms(open=True))
    now = datetime.now(UTC)
    fay = a_newcomer("fay@atoll.example")
    requests.ask(user=fay, name="Atoll Analytics", country="FI", plan="starter", moment=now)
    departures.ask_to_leave(
        tenant=house.vision,
        leaves_on=date.fromordinal(now.date().toordinal() + 30),
        reason="Our project ends.",
        by=house.ann.email,
        moment=now - timedelta(hours=2),
    )
    return a_newcomer()


def opened(**terms: Any) -> None:
    policy.set_policy(terms=SignUpTerms(**{"open": True, **terms}))


def asks(person: User, **fields: str) -> str:
    response = signed_in(person).post("/sign-up/", {**ASK, **fields}, follow=True)
    assert response.status_code == 200
    return response.text


def decides(op: User, act: str, **fields: object) -> str:
    response = signed_in(op).post("/operator/sign-ups/", {"act": act, **fields}, follow=True)
    assert response.status_code == 200
    return response.text


def saves_a_card(tenant: Tenant, number: str = "pm_1", fingerprint: str = "f1") -> None:
    method = Method(
        id=number,
        kind="card",
        brand="visa",
        last4="4242",
        exp_month=4,
        exp_year=2030,
        fingerprint=fingerprint,
    )
    saved_methods.save_method(tenant=tenant, method=method, moment=datetime.now(UTC))


def refusal(person: User, **fields: str) -> str:
    with pytest.raises(SignUpError) as refused:
        requests.ask(
            user=person,
            **{"name": "Orbit", "country": "DE", "plan": "starter", **fields},
            moment=datetime.now(UTC),
        )
    return str(refused.value)
