"""Who belongs to a tenant: its members look at the team, owners change it, and operators do so for any tenant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import cast

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.utils.translation import gettext as _

from portal.core.tenants import account_mails, invitation_links, invitations, team
from portal.core.tenants.access import ALLOWED, LABELS, Action, DeniedError, Right, rights_of
from portal.core.tenants.models import Invitation, Membership, Role, Tenant, User
from portal.core.tenants.scope import acting_scope
from portal.core.tenants.team import TeamError
from portal.sentences import sentence
from portal.web import form_input
from portal.web import format as say
from portal.web.access_decorators import TenantRequest, answer, operator_page, tenant_act, tenant_page
from portal.web.page_frame import PageFrame
from portal.web.recent_proof import require_recent_proof

TYPED: Mapping[str, Sequence[str]] = {"invite": ("email", "role"), "users": ("member", "users")}
"""By act the fields that its form shows once more where it is refused."""


@dataclass(frozen=True, kw_only=True)
class ActionRow:
    """Which roles may do one thing, for the table of the page."""

    label: str
    roles: Sequence[tuple[str, bool]]


@dataclass(frozen=True, kw_only=True)
class TeamPage:
    """A tenant's people. `manages`: the person changes them, here or as an operator."""

    tenant: Tenant
    members: Sequence[Membership]
    invitations: Sequence[Invitation]
    actions: Sequence[ActionRow]
    choices: Sequence[tuple[str, str]]
    typed: Mapping[str, str]  # into the form that was refused last
    own: Membership | None  # the person's own
    manages: bool
    as_operator: bool
    manages_elsewhere: bool  # an operator, who does so on a page of the operators
    can_mail: bool
    valid_for: timedelta
    moment: datetime


@tenant_page(Action.READ, area="team")
def team_page(request: TenantRequest) -> HttpResponse:
    with acting_scope(request.tenant):  # the pages of a tenant may not read who else there is
        user = cast("User", request.user)
        page = _page(
            request.tenant,
            user,
            form_input.last(request, reverse("change_team", args=[request.tenant.slug])),
            manages=Action.MANAGE in request.may,
            moment=request.moment,
        )
    if not request.frame.operator:  # or one who looks at the tenant as it sees itself
        page = replace(page, manages_elsewhere=False)
    return answer(request, request.frame, page, whole="team.html")


def makes_or_removes_owner(request: HttpRequest, tenant: Tenant) -> bool:
    """Whether what was sent needs a recent proof: it gives the tenant away, or changes how it is guarded. One query."""
    form = request.POST
    act = form.get("act", "")
    if act in {"transfer", "second_factor"} or form.get("role", "").strip() == Role.OWNER:
        return True
    if act in {"role", "remove"}:
        return Membership.objects.filter(tenant=tenant, pk=_number(form, "member"), role=Role.OWNER).exists()
    if act == "resend":
        return Invitation.objects.filter(
            tenant=tenant, pk=_number(form, "invitation"), role=Role.OWNER
        ).exists()
    return False


@tenant_act(Action.MANAGE, proof=makes_or_removes_owner)
def change_team(request: HttpRequest, tenant: Tenant) -> HttpResponse:
    _change(request, tenant)
    return redirect("team", tenant.slug)


@tenant_act(Action.READ)
def leave_team(request: HttpRequest, tenant: Tenant) -> HttpResponse:
    try:
        team.leave(tenant=tenant, user=cast("User", request.user))
    except TeamError as refusal:
        if refusal.code == "no-member":  # an operator, who looks into any tenant
            raise DeniedError("not a member") from refusal
        messages.error(request, sentence(refusal))
        return redirect("team", tenant.slug)
    messages.success(request, _("Your membership of %(tenant)s has ended.") % {"tenant": tenant.name})
    return redirect("tenants")


@operator_page("tenants", acts=Right.TENANTS)
def operator_team(request: HttpRequest, frame: PageFrame, *, tenant: str) -> HttpResponse:
    """The same for any tenant, by operators whose role may."""
    owner = get_object_or_404(Tenant, slug=tenant)
    if request.method == "POST":
        if makes_or_removes_owner(request, owner):
            require_recent_proof(request)
        _change(request, owner, as_operator=True)
        return redirect("operator_team", owner.slug)
    user = cast("User", request.user)
    manages = Right.TENANTS in rights_of(user)
    typed = form_input.last(request, request.path)
    page = _page(owner, user, typed, manages=manages, moment=datetime.now(UTC), as_operator=True)
    return answer(request, frame, page, whole="team.html")


def _page(
    tenant: Tenant,
    user: User,
    typed: Mapping[str, str],
    *,
    manages: bool,
    moment: datetime,
    as_operator: bool = False,
) -> TeamPage:
    """Two queries."""
    members = team.members(tenant)
    for member in members:
        if manages and str(member.pk) == typed.get("member"):
            member.scheduler_users = [typed["users"]]
    return TeamPage(
        tenant=tenant,
        members=members,
        invitations=list(invitations.open_invitations(tenant)) if manages or as_operator else (),
        actions=_actions(),
        choices=[(role.value, role_name(role)) for role in Role],
        typed=typed,
        own=next((row for row in members if row.user_id == user.pk), None),
        manages=manages,
        as_operator=as_operator,
        manages_elsewhere=not as_operator and Right.TENANTS in rights_of(user),
        can_mail=account_mails.can_send(),
        valid_for=invitations.VALID_FOR,
        moment=moment,
    )


def role_name(role: Role) -> str:
    """`Owner`, without what it may do."""
    return _(str(role.label)).partition(":")[0]


def _actions() -> list[ActionRow]:
    return [
        ActionRow(label=_(label), roles=[(role_name(role), action in ALLOWED[role]) for role in Role])
        for action, label in LABELS.items()
    ]


def _change(request: HttpRequest, tenant: Tenant, *, as_operator: bool = False) -> None:
    """What the pressed button says; a refusal is told on the page that follows."""
    act = request.POST.get("act", "")
    try:
        if act in {"invite", "resend", "revoke"}:
            done = _invite(request, tenant, act, as_operator=as_operator)
        elif act == "second_factor":
            done = _require_second_factor(request, tenant)
        elif act == "member_view":
            done = _show_members_own(request, tenant)
        else:
            done = _change_member(request.POST, tenant, cast("User", request.user), act)
        messages.success(request, done)
    except TeamError as refusal:
        if act in TYPED:
            form_input.keep(request, *TYPED[act])
        messages.error(request, sentence(refusal))


def _invite(request: HttpRequest, tenant: Tenant, act: str, *, as_operator: bool) -> str:
    moment, by, form = datetime.now(UTC), str(request.user), request.POST
    if act == "revoke":
        row = _invitation(form, tenant)
        invitations.revoke(invitation=row, moment=moment)
        return _("The invitation of %(email)s is revoked.") % {"email": row.email}
    if act == "resend":
        row = invitations.resend(
            invitation=_invitation(form, tenant), by=by, moment=moment, shows_link=as_operator
        )
    else:
        row = invitations.invite(
            tenant=tenant,
            email=_text(form, "email"),
            role=_role(form),
            by=by,
            moment=moment,
            shows_link=as_operator,
        )
    if account_mails.can_send():
        return _("%(email)s is invited by e-mail.") % {"email": row.email}
    link = request.build_absolute_uri(invitation_links.path_of(row))
    return _("E-mail is not configured. Give %(email)s this link: %(link)s") % {
        "email": row.email,
        "link": link,
    }


def _require_second_factor(request: HttpRequest, tenant: Tenant) -> str:
    required = request.POST.get("required") == "yes"
    team.require_second_factor(tenant=tenant, required=required)
    if required:
        return _("Members of %(tenant)s need a second factor from now on.") % {"tenant": tenant.name}
    return _("Members of %(tenant)s need no second factor any more.") % {"tenant": tenant.name}


def _show_members_own(request: HttpRequest, tenant: Tenant) -> str:
    own = request.POST.get("own") == "yes"
    team.show_members_own(tenant=tenant, own=own)
    if own:
        return _("Members of %(tenant)s see their own jobs and the totals of their projects from now on.") % {
            "tenant": tenant.name
        }
    return _("Members of %(tenant)s see everything from now on.") % {"tenant": tenant.name}


def _change_member(form: QueryDict, tenant: Tenant, user: User, act: str) -> str:
    rows = Membership.objects.select_related("user").only("role", "tenant_id", "user__email")
    member = rows.filter(tenant=tenant, pk=_number(form, "member")).first()
    if member is None:
        raise TeamError("no-member", tenant=tenant.name)
    member.tenant = tenant
    values = {"email": str(member.user.email), "tenant": tenant.name}
    if act == "remove":
        team.remove_member(member=member)
        return _("Removed from %(tenant)s: %(email)s.") % values
    if act == "transfer":
        team.transfer_ownership(tenant=tenant, user=user, to=member)
        return _("%(email)s is the owner now, and your role is billing.") % values
    if act == "users":
        names = _text(form, "users", longest=3000).split(",")
        team.set_scheduler_users(member=member, names=names)
        return _("The user names of %(email)s are saved.") % values
    role = _role(form)
    team.set_role(member=member, role=role)
    return _("%(email)s has the role %(role)s now.") % {**values, "role": say.inside(role_name(role))}


def _invitation(form: QueryDict, tenant: Tenant) -> Invitation:
    row = Invitation.objects.filter(tenant=tenant, pk=_number(form, "invitation")).first()
    if row is None:
        raise TeamError("invitation-ended")
    row.tenant = tenant
    return row


def _role(form: QueryDict) -> Role:
    text = _text(form, "role")
    if text not in Role.values:
        raise TeamError("no-role", role=text[:20], roles=", ".join(Role.values))
    return Role(text)


def _text(form: QueryDict, name: str, *, longest: int = 300) -> str:
    return form.get(name, "").replace("\0", "").strip()[:longest]


def _number(form: QueryDict, name: str) -> int:
    text = form.get(name, "")
    return int(text) if text.isdecimal() and text.isascii() and len(text) < 19 else 0
