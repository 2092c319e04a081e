"""Dan signs up by himself for a public plan: by e-mail, card and approval, as Op asks; owners change plan and leave."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from allauth.account.models import EmailAddress
from django.core import mail
from django.core.management import call_command
from django.core.management.base import CommandError
from django.test import Client

from billing.catalog import subscriptions
from billing.catalog.public_plans import set_offer
from billing.models import (
    Archive,
    Departure,
    MethodState,
    Plan,
    SavedMethod,
    SignUp,
    SignUpState,
    Subscription,
    Wallet,
    WalletGrant,
)
from billing.sign_up import policy, requests
from billing.tasks import advance_sign_up
from portal.config_file.apply import apply
from portal.config_file.schema import ConfigError, parse
from portal.core.audit.models import AuditEntry
from portal.core.outbox.models import OutboxMessage
from portal.core.tenants import invitations, team
from portal.core.tenants.models import Membership, OperatorRole, Ownership, Role, Tenant, User
from portal.core.tenants.operators import set_operator_role
from portal.core.tenants.tasks import send_account_mails
from tests import builders
from tests.web.house import page, signed_in
from tests.web.sign_up_stories import (
    ASK,
    DAN,
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
from tests.web.test_overview import words

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _mail_server(settings: Any) -> None:
    mail_reaches_people(settings)


@pytest.fixture
def op() -> User:
    return op_offers_plans()


def test_dan_signs_up_by_e_mail_and_is_on_his_plan_with_credit_once_op_approves(op: User) -> None:
    dan = Client()
    assert dan.get("/accounts/signup/").status_code == 404
    assert "ask an owner" in dan.get("/accounts/login/").text.lower()
    decides(
        op, "policy", open="on", approval="on", domain_limit="5", refused_domains="Mailinator.com, x.example"
    )
    assert "New here? Sign up" in dan.get("/accounts/login/").text
    form = {"email": "dan@a.mailinator.com", "password1": SECRET, "password2": SECRET}
    assert "cannot sign up here" in dan.post("/accounts/signup/", form).text
    answer = dan.post("/accounts/signup/", {**form, "email": DAN})
    assert answer.headers["Location"] == "/accounts/confirm-email/"
    assert dan.get("/").status_code == 302  # nobody is signed in yet
    (path,) = re.findall(r"http://testserver(/accounts/confirm-email/\S+/)", str(mail.outbox[-1].body))
    dan.post(path)
    dan.post("/accounts/login/", {"login": DAN, "password": SECRET})
    text = dan.get("/", follow=True).text
    assert "Choose a plan" in text
    assert "€25.00 to begin with" in text
    assert "deal" not in text
    text = dan.post("/sign-up/", ASK, follow=True).text
    assert "The operator looks at your sign-up." in text
    tenant = Tenant.objects.get(slug__startswith="orbit-robotics-")
    assert (tenant.name, tenant.country) == ("Orbit Robotics", "DE")
    assert not Subscription.objects.exists()
    assert not Wallet.objects.exists()
    assert dan.get(f"/t/{tenant.slug}/team/").status_code == 200  # it may be looked at
    invites = {"act": "invite", "email": "a@b.example", "role": "owner"}
    assert dan.post(f"/t/{tenant.slug}/team/change/", invites).status_code == 404  # and mails nobody
    assert "1 sign-up waiting for your approval." in page(op, "/operator/")
    assert "Orbit Robotics" in page(op, "/operator/sign-ups/")
    decides(op, "approve", sign_up=SignUp.objects.get().pk)
    row = SignUp.objects.get()
    assert (row.state, row.decided_by, row.credit) == (SignUpState.ACTIVE, op.email, 2500)
    assert Subscription.objects.get().plan.name == "starter"
    assert Wallet.objects.get().balance == 2500
    assert Membership.objects.get().role == Role.OWNER
    send_account_mails()
    assert mail.outbox[-1].subject == "Orbit Robotics is ready on ClusterTab"
    assert dan.get("/", follow=True).redirect_chain[-1][0] == f"/t/{tenant.slug}/"
    assert "does not wait for a decision" in decides(op, "approve", sign_up=row.pk)
    assert WalletGrant.objects.count() == 1
    whos = AuditEntry.objects.of_table(SignUp).values_list("operation", "who")
    assert list(whos)[-1] == ("update", op.email)


def test_a_refusal_says_why_leaves_nothing_behind_and_dan_may_ask_again(op: User) -> None:
    opened()
    dan = a_newcomer()
    asks(dan)
    row = SignUp.objects.get()
    assert "Say why" in decides(op, "refuse", sign_up=row.pk, reason=" ")
    assert "Orbit Robotics is refused" in decides(op, "refuse", sign_up=row.pk, reason="No contract.")
    assert Archive.objects.get().by == op.email
    assert not Membership.objects.exists()
    send_account_mails()
    assert "No contract." in str(mail.outbox[-1].body)
    assert "refused your sign-up for Orbit Robotics: No contract." in page(dan, "/sign-up/")
    asks(dan)
    assert SignUp.objects.waiting().get().tenant_id != row.tenant_id
    withdrawal = signed_in(dan).post("/sign-up/", {"act": "withdraw"}, follow=True).text
    assert "Your sign-up is taken back." in withdrawal
    assert [one.state for one in SignUp.objects.order_by("pk")] == ["refused", "withdrawn"]


def test_a_card_comes_before_the_plan_and_gives_credit_once_whoever_brings_it(
    op: User, settings: Any
) -> None:
    opened(approval=False, card=True)
    dan = a_newcomer()
    assert "Nobody can sign up" in refusal(dan)  # no gateway is configured
    settings.STRIPE_SECRET_KEY = "sk_test_1"
    assert "Card missing" in asks(dan)
    row = SignUp.objects.get()
    assert "No card is saved yet" in signed_in(dan).post("/sign-up/", {"act": "go-on"}, follow=True).text
    saves_a_card(row.tenant)
    assert OutboxMessage.objects.filter(task="billing.tasks.advance_sign_up").count() == 1
    for _ in range(2):  # a task may run twice
        advance_sign_up(tenant_id=row.tenant_id)
    row.refresh_from_db()
    assert (row.state, row.credit, row.decided_by) == (SignUpState.ACTIVE, 2500, "")
    eve = a_newcomer("eve@speech.example")
    asks(eve, name="Speech Lab")
    other = SignUp.objects.get(user=eve)
    saves_a_card(other.tenant, "pm_2")
    assert (
        "Welcome. Speech Lab is on plan starter."
        in signed_in(eve).post("/sign-up/", {"act": "go-on"}, follow=True).text
    )
    other.refresh_from_db()
    assert (other.state, other.credit) == (SignUpState.ACTIVE, 0)  # the same card
    assert Wallet.objects.count() == 1


def test_limits_keep_disposable_sign_ups_from_costing_anything(op: User) -> None:
    opened(approval=False, domain_limit=2, refused_domains=["spam.example"])
    dan = a_newcomer()
    assert "Choose a plan of the list" in refusal(dan, plan="deal")
    assert "two letters" in refusal(dan, country="Germany")
    assert "name of your organization" in refusal(dan, name=" \0 ")
    assert "Operators do not sign up" in refusal(op)
    assert "cannot sign up here" in refusal(a_newcomer("x@mail.spam.example"))
    unproved = builders.a_person("carl@orbit.example")
    assert "Confirm your e-mail address first" in refusal(unproved)
    assert "Welcome. Orbit Robotics is on plan starter." in asks(dan)
    assert not Wallet.objects.exists()  # nobody has proved him: no credit
    opened(domain_limit=2)
    asks(a_newcomer("b@orbit.example"))
    assert "Too many people of orbit.example" in refusal(a_newcomer("c@orbit.example"))
    opened(domain_limit=0)
    asks(dan, name="Second")
    assert "You have signed up for Second already" in refusal(dan)
    for _ in range(requests.MOST_OF_PERSON - 2):
        requests.withdraw(sign_up=SignUp.objects.get(user=dan, state="approval"), moment=datetime.now(UTC))
        asks(dan)
    requests.withdraw(sign_up=SignUp.objects.get(user=dan, state="approval"), moment=datetime.now(UTC))
    assert "5 times already" in refusal(dan)
    texts = [asks(dan) for _ in range(10)]
    assert ["from your network" in text for text in (texts[0], texts[-1])] == [False, True]


def test_who_signed_up_with_the_address_of_somebody_else_has_nothing_of_what_they_are_given(op: User) -> None:
    for name in ("one", "two", "three"):
        person = builders.a_person(f"{name}@vision.example")
        EmailAddress.objects.create(user=person, email=person.email, verified=False, primary=True)
    tenant = builders.a_tenant()
    team.add_member(tenant=tenant, user=User.objects.get(email="one@vision.example"), role=Role.OWNER)
    assert not User.objects.get(email="one@vision.example").has_usable_password()
    assert not set_operator_role(email="three@vision.example", role=OperatorRole.ADMIN).has_usable_password()
    moment = datetime.now(UTC)
    row = invitations.invite(
        tenant=tenant, email="two@vision.example", role=Role.OWNER, by="ann@vision.example", moment=moment
    )
    assert invitations.needs_password(invitations.account_of(row))


def test_an_owner_changes_among_public_plans_from_the_next_period_on_and_asks_to_leave(op: User) -> None:
    cluster = builders.a_cluster()
    starter = Plan.objects.get(name="starter")
    tenant = builders.a_tenant(plan=starter, accounts=[(cluster, "vision")], timezone="Europe/Berlin")
    ann = builders.a_person("ann@vision.example", tenant, Role.OWNER)
    carla = builders.a_person("carla@vision.example", tenant, Role.BILLING)
    change, choose = "/t/vision-lab/plan/change/", "/t/vision-lab/plan/choose/"
    assert signed_in(carla).get(change).status_code == 404
    assert "Change plan or leave" in page(ann, "/t/vision-lab/plan/")
    assert "deal" not in page(ann, change)
    preview = page(ann, f"{change}?plan=growth")
    assert "€2.00" in preview
    assert "€1.50" in preview
    seen = re.findall(r'name="seen" value="([^"]+)"', preview)[0]
    post = {"act": "change", "plan": "growth", "seen": "older"}
    assert "changed since the preview" in signed_in(ann).post(choose, post, follow=True).text
    text = signed_in(ann).post(choose, {**post, "seen": seen}, follow=True).text
    assert "You are on plan growth from" in text
    later = Subscription.objects.get(plan__name="growth")
    local = later.since.astimezone(tenant.zone)
    assert (local.day, local.hour, local > datetime.now(UTC)) == (1, 0, True)
    for person, may_change in ((ann, True), (carla, False)):  # both read what it will cost
        plan = page(person, "/t/vision-lab/plan/")
        shown = words(plan)
        assert f"Planned change {'See the change ' if may_change else ''}You are on plan growth from" in shown
        assert "Paid by wallets. Prices in EUR, before tax: GPU time €1.50 per GPU-hour" in shown
        assert "GPU time €2.00 per GPU-hour" in shown  # until then
        assert ('href="/t/vision-lab/plan/change/"' in plan) == may_change
    assert "You stay on your plan." in signed_in(ann).post(choose, {"act": "stay"}, follow=True).text
    assert Subscription.objects.get().until is None
    assert "Planned change" not in page(ann, "/t/vision-lab/plan/")
    assert "is not offered" in signed_in(ann).post(choose, {**post, "plan": "deal"}, follow=True).text
    subscriptions.subscribe(tenant=tenant, plan=Plan.objects.get(name="deal"), since=later.since)
    refused = signed_in(ann).post(choose, {**post, "seen": seen}, follow=True).text
    assert "The operator has planned a change to plan deal already" in refused
    subscriptions.withdraw(subscription=Subscription.objects.get(plan__name="deal"))
    Subscription.objects.update(until=local + timedelta(days=9))  # Op ends it
    refused = signed_in(ann).post(choose, {**post, "seen": seen}, follow=True).text
    assert "The operator ends your plan on" in refused
    assert "The operator ends your plan on" in page(ann, change)
    Subscription.objects.update(until=None)
    leave = {"act": "leave", "leaves_on": "2020-01-01", "reason": "We move."}
    assert "Enter a day from tomorrow on" in signed_in(ann).post(choose, leave, follow=True).text
    leave["leaves_on"] = f"{(datetime.now(UTC) + timedelta(days=40)).date()}"
    assert "The operator is asked" in signed_in(ann).post(choose, leave, follow=True).text
    assert "1 tenant asked to leave." in page(op, "/operator/")
    assert "We move." in page(op, "/operator/sign-ups/")
    act = "/operator/tenants/vision-lab/leave/"
    shown = signed_in(op).post(act, {"act": "preview"}).text
    assert Ownership.objects.get().until is None
    digest = re.findall(r'name="seen" value="([^"]+)"', shown)[0]
    done = signed_in(op).post(act, {"act": "confirm", "seen": digest}, follow=True).text
    assert "1 account of Vision Lab ended." in done
    assert Ownership.objects.get().until is not None
    assert Departure.objects.get().ended_at is not None
    assert "has not asked to leave" in signed_in(op).post(act, {"act": "preview"}).text


def test_support_looks_at_sign_ups_and_decides_nothing(op: User) -> None:
    opened()
    dan = a_newcomer()
    asks(dan)
    support = builders.a_person("sam@cluster.example")
    support.operator_role = OperatorRole.SUPPORT
    support.save()
    assert "Orbit Robotics" in page(support, "/operator/sign-ups/")
    for act in ("approve", "policy"):
        assert "Your role does not allow this" in decides(support, act, sign_up=SignUp.objects.get().pk)
    assert SignUp.objects.get().state == SignUpState.APPROVAL
    assert signed_in(dan).get("/operator/sign-ups/").status_code == 404
    assert SavedMethod.objects.filter(state=MethodState.USABLE).count() == 0


FILE = """
[sign_up]
open = true
domain_limit = 9
refused_domains = ["Spam.example"]

[[plan]]
name = "starter"
currency = "EUR"
settles = "wallet"
charges = ["gpu"]
from = 2017-01-01
public = true
starting_credit = "40"

[[plan.price]]
meter = "gpu-hour"
unit_price = "2.00"
"""


def test_a_file_a_command_and_the_plans_page_say_the_same_as_the_operators_page(op: User) -> None:
    set_offer(plan=Plan.objects.get(name="starter"), public=False)
    changes = [str(change) for change in apply(file=parse(FILE)).changes]
    assert "plan starter: public nothing -> yes" in changes
    assert "plan starter: starting credit 25.00 -> 40.00" in changes
    assert any(text.startswith("sign_up: new (open yes") for text in changes)
    assert apply(file=parse(FILE)).changes == []
    assert policy.get_policy().refused_domains == ["spam.example"]
    with pytest.raises(ConfigError, match="starting credit pays for nothing"):
        apply(file=parse(FILE.replace('"wallet"', '"invoice"')))
    plan_page = "/operator/plans/starter/"
    offer = {"act": "offer", "public": "on", "starting_credit": "12.345"}
    assert "no finer than its smallest unit" in signed_in(op).post(plan_page, offer, follow=True).text
    signed_in(op).post(plan_page, {**offer, "starting_credit": "12.50"})
    dan, eve = a_newcomer(), a_newcomer("eve@speech.example")
    asks(dan)
    asks(eve, name="Speech Lab")
    shown = StringIO()
    call_command("show_sign_ups", stdout=shown)
    slug, speech = (SignUp.objects.get(user=one).tenant.slug for one in (dan, eve))
    assert f"{slug} (Orbit Robotics), dan@orbit.example, plan starter: Waits for the operator" in str(
        shown.getvalue()
    )
    call_command("decide_sign_up", slug, "--approve", stdout=StringIO())
    assert Wallet.objects.get().balance == 1250
    with pytest.raises(CommandError, match="does not wait for a decision"):
        call_command("decide_sign_up", slug, "--approve", stdout=StringIO())
    call_command("decide_sign_up", speech, "--refuse", "No contract.", stdout=StringIO())
    assert SignUp.objects.get(user=eve).reason == "No contract."


def test_who_is_gone_owns_nothing_and_an_account_that_nobody_proves_is_forgotten(op: User) -> None:
    opened()
    dan, eve = a_newcomer(), a_newcomer("eve@speech.example")
    asks(dan)
    asks(eve, name="Speech Lab")
    signed_in(dan).post(f"/t/{SignUp.objects.get(user=dan).tenant.slug}/team/leave/", {"confirm": "yes"})
    assert not Membership.objects.filter(user=dan).exists()
    decides(op, "approve", sign_up=SignUp.objects.get(user=dan).pk)
    assert Membership.objects.get(user=dan).role == Role.OWNER
    User.objects.filter(pk=eve.pk).update(is_active=False)
    assert "no open account any more" in decides(op, "approve", sign_up=SignUp.objects.get(user=eve).pk)
    ghost = builders.a_person("ghost@nowhere.example")
    EmailAddress.objects.create(user=ghost, email=ghost.email, verified=False, primary=True)
    now = datetime.now(UTC)
    assert team.forget_unproved(moment=now + timedelta(days=6)) == 0
    assert team.forget_unproved(moment=now + timedelta(days=8)) == 1
    assert set(User.objects.values_list("email", flat=True)) == {op.email, dan.email, eve.email}
