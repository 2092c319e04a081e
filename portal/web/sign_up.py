"""Signing up by oneself: the page of somebody who has an account and no tenant yet, from the plans to the answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from billing.catalog import line_descriptions
from billing.catalog.plans import PlanError
from billing.catalog.price_words import price_words, term_words
from billing.models import WAITING, Plan, PlanVersion, Settles, SignUp, SignUpState
from billing.queries.plans import Version, filled_all
from billing.sign_up import policy as policies
from billing.sign_up import requests
from billing.sign_up.policy import SignUpError
from billing.wallets.entries import WalletError
from portal.core.audit import acting_as
from portal.core.tenants.models import User
from portal.sentences import sentence
from portal.web import form_input
from portal.web import format as say
from portal.web.access_decorators import answer, frame_of
from portal.web.plan_difference import SETTLES
from portal.web.rate_limits import within_rate

RATE = "10/h/ip"
FIELDS = ("name", "country", "plan")
REFUSALS = (SignUpError, PlanError, WalletError)


@dataclass(frozen=True, kw_only=True)
class PlanOffer:
    """A plan that somebody can choose, with what it costs."""

    name: str
    currency: str
    settles: str
    credit: str  # to begin with; "" for none
    prices: Sequence[tuple[str, str]]
    terms: Sequence[tuple[str, str]]


@dataclass(frozen=True, kw_only=True)
class SignUpPage:
    """`sign_up` is the person's newest; `offers` are there where they can ask for a tenant."""

    sign_up: SignUp | None
    waits_for_card: bool
    waits: bool
    is_refused: bool
    approval: bool
    card: bool
    offers: Sequence[PlanOffer]
    typed: dict[str, str]


def leads_to_sign_up(user: User, *, belongs: bool) -> bool:
    """Whether the person's home is the page of signing up. At most two queries."""
    newest = requests.sign_up_of(user)
    if newest is not None and newest.state in WAITING:
        return True
    return not belongs and (newest is not None or policies.is_open())


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def sign_up(request: HttpRequest) -> HttpResponse:
    """Where people can sign up, or the person has; anybody else gets 404."""
    if not isinstance(request.user, User):
        raise TypeError("only people of ours sign in")
    policy, newest = policies.get_policy(), requests.sign_up_of(request.user)
    is_open = policies.is_open(policy)
    if newest is None and not is_open:
        raise Http404("sign-up is closed")
    if request.method == "POST":
        return _act(request, request.user, newest)
    if newest is not None and requests.has_its_card(newest) and (led := _go_on_with_card(request, newest)):
        return led
    waits = newest is not None and newest.state in WAITING
    page = SignUpPage(
        sign_up=newest,
        waits=waits,
        waits_for_card=newest is not None and newest.state == SignUpState.CARD,
        is_refused=newest is not None and newest.state == SignUpState.REFUSED,
        approval=newest.approval if newest is not None and waits else policy.approval,
        card=policy.card,
        offers=list_offers() if is_open and not waits else (),
        typed=dict(form_input.last(request, request.path)),
    )
    return answer(request, frame_of(request.user, area=""), page, whole="sign_up.html")


def _act(request: HttpRequest, user: User, newest: SignUp | None) -> HttpResponse:
    moment, act = datetime.now(UTC).replace(microsecond=0), request.POST.get("act", "")
    try:
        with acting_as(user.email, why="sign-up"):
            if act == "ask":
                return _ask(request, user, moment)
            if newest is not None and act == "go-on":
                return _lead(requests.go_on(sign_up=newest, moment=moment), request)
            if newest is not None and act == "withdraw":
                requests.withdraw(sign_up=newest, moment=moment)
                messages.success(request, _("Your sign-up is taken back."))
    except REFUSALS as refusal:
        form_input.keep(request, *FIELDS)
        messages.error(request, sentence(refusal))
    return redirect("sign_up")


def _ask(request: HttpRequest, user: User, moment: datetime) -> HttpResponse:
    if not within_rate(request, "sign_up", RATE):
        messages.error(request, _("Too many sign-ups came from your network. Try again in an hour."))
        return redirect("sign_up")
    name, country, plan = (request.POST.get(field, "") for field in FIELDS)
    return _lead(requests.ask(user=user, name=name, country=country, plan=plan, moment=moment), request)


def _lead(row: SignUp, request: HttpRequest) -> HttpResponse:
    if row.state != SignUpState.ACTIVE:
        return redirect("sign_up")
    messages.success(
        request, _("Welcome. %(tenant)s is on plan %(plan)s.") % {"tenant": row.tenant, "plan": row.plan}
    )
    return redirect("overview", row.tenant.slug)


def _go_on_with_card(request: HttpRequest, row: SignUp) -> HttpResponse | None:
    """The step that a worker takes as well, for who comes back from the page on which the card was saved."""
    try:
        with acting_as(row.email, why="sign-up"):
            return _lead(
                requests.go_on(sign_up=row, moment=datetime.now(UTC).replace(microsecond=0)), request
            )
    except REFUSALS as refusal:
        messages.error(request, sentence(refusal))
        return None


def list_offers() -> list[PlanOffer]:
    """The public plans as they are today. Eight queries, however many they are."""
    today = datetime.now(UTC).date()
    plans = list(policies.list_public_plans(today=today))
    current: dict[int, PlanVersion] = {}
    begun = PlanVersion.objects.filter(plan__in=plans, effective_from__lte=today).select_related("plan")
    for version in begun.order_by("effective_from"):
        current[version.plan_id] = version
    filled = {version.row.plan_id: version for version in filled_all(list(current.values()))}
    return [_offer(plan, filled[plan.pk]) for plan in plans]


def _offer(plan: Plan, version: Version) -> PlanOffer:
    """What is agreed with one tenant alone is left out."""
    return PlanOffer(
        name=plan.name,
        currency=plan.currency,
        settles=_(SETTLES[Settles(plan.settles)]),
        credit=say.minor(plan.starting_credit, plan.currency) if plan.starting_credit else "",
        prices=[
            (line_descriptions.describe(price), price_words(price))
            for price in version.prices
            if price.tenant_id is None and price.valid_until is None
        ],
        terms=[
            (term.name, term_words(term, plan.currency)) for term in version.terms if term.tenant_id is None
        ],
    )
