"""Sign-ups that wait for an operator, tenants that ask to leave, and what is asked of people who sign up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _

from billing.catalog.plans import PlanError
from billing.invoicing.offboarding import ArchiveError
from billing.models import WAITING, Departure, SignUp, SignUpPolicy, SignUpState
from billing.sign_up import departures, requests
from billing.sign_up import policy as policies
from billing.sign_up.policy import SignUpError, SignUpTerms
from billing.wallets.entries import WalletError
from portal.core.audit import acting_as
from portal.core.tenants.access import Right, rights_of
from portal.core.tenants.ownership import OwnershipConflictError
from portal.sentences import sentence
from portal.web import acts
from portal.web import format as say
from portal.web.access_decorators import answer, operator_page
from portal.web.acts import Field, Preview, Values
from portal.web.badges import Badge, Tone
from portal.web.page_frame import PageFrame
from portal.web.recent_proof import require_recent_proof
from portal.web.tenant_acts import tenant_act_of, tenant_of

SHOWN = 100
REFUSALS = (SignUpError, PlanError, WalletError, ArchiveError)
TONES: dict[str, Tone] = {SignUpState.ACTIVE: "ok", SignUpState.REFUSED: "late"}


@dataclass(frozen=True, kw_only=True)
class SignUpRow:
    row: SignUp
    badge: Badge
    credit: str  # to begin with: given, or to be given; "" for none
    decides: bool  # it waits for an operator


@dataclass(frozen=True, kw_only=True)
class SignUpsPage:
    waiting: Sequence[SignUpRow]  # for approval, before those that wait for a card
    decided: Sequence[SignUpRow]  # the newest
    departures: Sequence[Departure]
    policy: SignUpPolicy
    domains: str
    obstacles: Sequence[str]
    plans: int  # that people can choose among
    may_act: bool


@operator_page("sign_ups", acts=Right.READ)
def operator_sign_ups(request: HttpRequest, frame: PageFrame) -> HttpResponse:
    """Seven queries, whatever there is."""
    if request.method == "POST":
        _act(request)
        return redirect("operator_sign_ups")
    rows = SignUp.objects.select_related("tenant", "plan")
    policy = policies.get_policy()
    page = SignUpsPage(
        waiting=[
            _row(row) for row in rows.filter(state__in=WAITING).order_by("state", "asked_at", "pk")[:SHOWN]
        ],
        decided=[_row(row) for row in rows.exclude(state__in=WAITING).order_by("-decided_at", "-pk")[:SHOWN]],
        departures=list(departures.open_departures()[:SHOWN]),
        policy=policy,
        domains=", ".join(policy.refused_domains),
        obstacles=policies.find_obstacles(policy) if policy.open else (),
        plans=policies.list_public_plans(today=datetime.now(UTC).date()).count(),
        may_act=Right.TENANTS in rights_of(request.user),
    )
    return answer(request, frame, page, whole="operator/sign_ups.html")


@operator_page("sign_ups", acts=Right.TENANTS)
def let_leave(request: HttpRequest, frame: PageFrame, *, tenant: str) -> HttpResponse:
    """End the accounts and the plan of a tenant that asked to leave; it is archived once its last invoice is paid."""
    row, now = tenant_of(tenant), datetime.now(UTC).replace(microsecond=0)

    def preview(values: Values) -> Preview:
        del values
        departure = departures.departure_of(row)
        acts.undone(lambda: departures.carry_out(tenant=row, moment=now))
        day = say.day(departure.leaves_on) if departure else ""
        early = departure is not None and departure.leaves_on > now.astimezone(row.zone).date()
        text = _("{tenant} asked to leave on {day}.")
        if early:
            text = _("{tenant} asked to leave on {day}, which has not come yet.")
        return Preview(
            [
                text.format(tenant=row.name, day=day),
                _("Its accounts and its plan end now. What they use afterwards is billed to nobody."),
                _("The next close bills the rest. Then run archive_tenant {slug}.").format(slug=row.slug),
            ]
        )

    def carry_out(values: Values) -> str:
        del values
        ended = departures.carry_out(tenant=row, moment=now)
        return _("{accounts} of {tenant} ended.").format(
            accounts=say.counted(ended, "account"), tenant=row.name
        )

    act = tenant_act_of(
        row,
        _("Let {tenant} leave"),
        _("End accounts and plan"),
        Right.TENANTS,
        [Field(name="why", label=_("Reason"), hint=_("Kept in the history."))],
        preview,
        carry_out,
        (SignUpError, PlanError, OwnershipConflictError),
    )
    return acts.conduct(request, frame, act)


def _row(row: SignUp) -> SignUpRow:
    credit = row.credit if row.state not in WAITING else row.plan.starting_credit
    return SignUpRow(
        row=row,
        badge=Badge(label=row.get_state_display(), tone=TONES.get(row.state, "wait")),
        credit=say.minor(credit, row.plan.currency) if credit else "",
        decides=row.state == SignUpState.APPROVAL,
    )


def _act(request: HttpRequest) -> None:
    """What the pressed button says; a refusal is told on the page that follows."""
    act, who = request.POST.get("act", ""), str(request.user)
    if Right.TENANTS not in rights_of(request.user):
        messages.error(request, _("Your role does not allow this. Nothing was changed."))
        return
    if act == "approve":  # which may give credit
        require_recent_proof(request)
    reason = request.POST.get("reason", "").replace("\0", "").strip()
    try:
        with acting_as(who, why=reason[:200]):
            if act == "policy":
                policies.set_policy(terms=_terms(request))
                messages.success(request, _("Saved."))
            elif act in {"approve", "refuse"}:
                messages.success(request, _decide(request, act, who, reason))
    except REFUSALS as refusal:
        messages.error(request, sentence(refusal))


def _decide(request: HttpRequest, act: str, who: str, reason: str) -> str:
    number, moment = request.POST.get("sign_up", ""), datetime.now(UTC).replace(microsecond=0)
    row = SignUp.objects.filter(pk=int(number)).first() if number.isdecimal() and len(number) < 19 else None
    if row is None:
        raise SignUpError("sign-up-decided")
    if act == "approve":
        row = requests.approve(sign_up=row, by=who, moment=moment)
        return _("{tenant} is on plan {plan} now.").format(tenant=row.tenant, plan=row.plan)
    row = requests.refuse(sign_up=row, by=who, reason=reason, moment=moment)
    return _("{tenant} is refused; {email} is told why.").format(tenant=row.tenant, email=row.email)


def _terms(request: HttpRequest) -> SignUpTerms:
    limit = request.POST.get("domain_limit", "").strip()
    words = request.POST.get("refused_domains", "")[: acts.LONGEST_LINES].replace(",", " ")
    return SignUpTerms(
        open="open" in request.POST,
        approval="approval" in request.POST,
        card="card" in request.POST,
        domain_limit=int(limit) if limit.isascii() and limit.isdecimal() and len(limit) < 9 else -1,
        refused_domains=words.split(),
    )
