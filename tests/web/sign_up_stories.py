"""Where people sign up by themselves: two plans are public, Dan has an account, and Fay waits for Op."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from allauth.account.models import EmailAddress

from billing.catalog.public_plans import set_offer
from billing.models import Plan
from billing.sign_up import departures, requests
from billing.sign_up.policy import SignUpTerms, set_policy
from portal.core.tenants.models import User
from tests import builders
from tests.web.house import House


def mail_reaches_people(settings: Any) -> None:
    """Without which nobody signs up."""
    settings.CLUSTERTAB_SENDS_MAIL, settings.PORTAL_URL = True, "https://tab.example"


def a_newcomer(email: str = "dan@orbit.example") -> User:
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
