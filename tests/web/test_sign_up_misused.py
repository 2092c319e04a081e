"""Dan's card at Stripe, and what people try who want credit, names and addresses that are not theirs."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from threading import Barrier, Thread
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from billing.catalog import subscriptions
from billing.catalog.public_plans import set_offer
from billing.invoicing import close_runs
from billing.models import CheckoutSession, Plan, SignUp, SignUpState, Wallet, WalletGrant
from billing.sign_up import requests
from billing.sign_up.policy import SignUpError
from billing.tasks import advance_sign_up
from portal.core.tenants.models import OperatorRole, User
from portal.dev.stripe_sandbox.errors import ApiError
from tests import builders
from tests.collecting import a_scenario
from tests.web.house import page, signed_in
from tests.web.sign_up_stories import (
    SECRET,
    a_newcomer,
    asks,
    decides,
    mail_reaches_people,
    op_offers_plans,
    opened,
    refusal,
    saves_a_card,
)

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _mail_server(settings: Any) -> None:
    mail_reaches_people(settings)


@pytest.fixture
def op() -> User:
    return op_offers_plans()


def test_the_plan_begins_when_dan_comes_back_from_the_page_on_which_he_saved_his_card(op: User) -> None:
    with a_scenario(now=datetime.now(UTC).replace(microsecond=0), currency="EUR") as scenario:
        opened(approval=False, card=True)
        dan = a_newcomer()
        asks(dan)
        row = SignUp.objects.get()
        client = signed_in(dan)
        page_there = client.post(f"/t/{row.tenant.slug}/payment/card/")
        assert (page_there.status_code, page_there.headers["Location"].startswith(scenario.stripe.url)) == (
            303,
            True,
        )
        opened_page = CheckoutSession.objects.get(tenant=row.tenant)
        with pytest.raises(ApiError):  # it is declined
            scenario.stripe.dashboard.pay(opened_page.external_id or "", "4000000000000002")
        back = f"/t/{row.tenant.slug}/payment/back/?session={opened_page.external_id}"
        assert "Card missing" in client.get(back, follow=True).text
        scenario.stripe.dashboard.pay(opened_page.external_id or "")
        answer = client.get(back, follow=True)
        assert answer.redirect_chain[-1][0] == f"/t/{row.tenant.slug}/"
        assert "Visa ending in 4242 is saved." in answer.text
        row.refresh_from_db()
        assert (row.state, row.credit, Wallet.objects.get().balance) == (SignUpState.ACTIVE, 2500, 2500)
        advance_sign_up(tenant_id=row.tenant_id)  # nor does the worker give it once more
        assert WalletGrant.objects.count() == 1
        assert scenario.charged == []
        assert scenario.stripe.violations == []


def test_what_a_hostile_user_tries_gains_nothing(op: User) -> None:
    opened()
    builders.a_tenant("orbit-robotics")
    dan, twin = a_newcomer(), a_newcomer("dan+2@orbit.example")
    asks(dan)
    asks(twin)
    first, second = SignUp.objects.order_by("pk")
    slugs = [row.tenant.slug for row in (first, second)]
    assert [bool(re.fullmatch(r"orbit-robotics-[a-z0-9]{4}", slug)) for slug in slugs] == [True] * 2
    assert len({*slugs, "orbit-robotics"}) == 3  # and none says that somebody has the name
    dan.operator_role = OperatorRole.ADMIN
    dan.save()
    assert "is your own" in decides(dan, "approve", sign_up=first.pk)
    dan.operator_role = ""
    dan.save()
    for row in (first, second):
        decides(op, "approve", sign_up=row.pk)
    outcomes = SignUp.objects.order_by("pk").values_list("state", "credit")
    assert list(outcomes) == [("active", 2500), ("active", 0)]  # the address is that of the same person
    opened(approval=False)
    eve = a_newcomer("eve@speech.example")
    set_offer(plan=Plan.objects.get(name="starter"), public=False)
    assert "Choose a plan of the list" in asks(eve)
    existing = Client().post(
        "/accounts/signup/", {"email": op.email, "password1": SECRET, "password2": SECRET}
    )
    new = Client().post(
        "/accounts/signup/", {"email": "new@x.example", "password1": SECRET, "password2": SECRET}
    )
    assert (existing.status_code, existing.headers["Location"]) == (new.status_code, new.headers["Location"])
    assert User.objects.get(email=op.email).check_password(builders.PASSWORD)


def test_a_plan_that_is_not_offered_any_more_waits_for_op_and_a_close_leaves_out_who_never_began(
    op: User, settings: Any
) -> None:
    settings.STRIPE_SECRET_KEY = "sk_test_1"
    opened(approval=False, card=True)
    dan, eve = a_newcomer(), a_newcomer("eve@speech.example")
    asks(dan)
    asks(eve, name="Speech Lab")
    row = SignUp.objects.get(user=dan)
    set_offer(plan=row.plan, public=False)
    saves_a_card(row.tenant)
    assert "Waits for approval" in signed_in(dan).post("/sign-up/", {"act": "go-on"}, follow=True).text
    requests.withdraw(sign_up=SignUp.objects.get(user=eve), moment=datetime.now(UTC))
    assert not close_runs.list_billable().exists()
    decides(op, "approve", sign_up=row.pk)
    assert [tenant.pk for tenant in close_runs.list_billable()] == [row.tenant_id]


def test_only_what_tells_cards_apart_brings_credit_and_who_never_saves_one_keeps_nobody_waiting(
    op: User, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.STRIPE_SECRET_KEY = "sk_test_1"
    opened(approval=False, card=True)
    dan, eve, fay = a_newcomer(), a_newcomer("eve@speech.example"), a_newcomer("fay@atoll.example")
    asks(dan)
    asks(eve, name="Speech Lab")
    row = SignUp.objects.get(user=dan)
    saves_a_card(row.tenant, fingerprint="")  # anybody could save it again as another person
    row = requests.go_on(sign_up=row, moment=datetime.now(UTC))
    assert (row.state, row.credit) == (SignUpState.ACTIVE, 0)
    monkeypatch.setattr(requests, "MOST_WAITING", 1)
    assert "Too many sign-ups wait" in refusal(fay)
    SignUp.objects.filter(user=eve).update(asked_at=datetime.now(UTC) - timedelta(days=8))
    assert "Card missing" in asks(fay)
    opened()
    gus = a_newcomer("gus@reef.example")
    SignUp.objects.filter(user=fay).update(asked_at=datetime.now(UTC) - timedelta(days=8))
    asks(gus, name="Reef")
    text = page(op, "/operator/sign-ups/")
    assert text.index(">Reef<") < text.index(">Speech Lab<")  # first of all who waits for Op


def test_a_sign_up_that_an_operator_has_worked_on_is_not_taken_back_by_the_person(op: User) -> None:
    opened()
    dan = a_newcomer()
    asks(dan)
    row = SignUp.objects.get()
    subscriptions.subscribe(tenant=row.tenant, plan=Plan.objects.get(name="deal"), since=datetime.now(UTC))
    answer = signed_in(dan).post("/sign-up/", {"act": "withdraw"}, follow=True)
    assert "The operator has begun to set up Orbit Robotics" in answer.text
    row.refresh_from_db()
    assert row.state == SignUpState.APPROVAL
    assert row.tenant.memberships.count() == 1
    SignUp.objects.update(state=SignUpState.CARD, card=True, approval=False)
    saves_a_card(row.tenant)
    advance_sign_up(tenant_id=row.tenant_id)
    row.refresh_from_db()
    assert row.state == SignUpState.APPROVAL  # instead of leaving the plan that was agreed
    assert row.tenant.subscriptions.get().plan.name == "deal"


@pytest.mark.django_db(transaction=True)
def test_dan_who_sends_the_form_four_times_at_once_has_one_tenant(op: User) -> None:
    opened()
    dan, now = a_newcomer(), datetime.now(UTC)
    start, answers = Barrier(4), list[str]()

    def ask() -> None:
        try:
            start.wait(60)
            requests.ask(user=dan, name="Orbit", country="DE", plan="starter", moment=now)
            answers.append("begun")
        except SignUpError as refused:
            answers.append(refused.code)
        finally:
            connection.close()

    threads = [Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(answers) == ["begun", *["sign-up-waits"] * 3]
    assert SignUp.objects.get().tenant.name == "Orbit"
