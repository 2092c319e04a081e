"""The only permission rule: who may do what in which tenant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import Any

from django.contrib.auth.models import AnonymousUser
from django.db.models import QuerySet
from django.http import Http404
from django.utils.translation import gettext_noop

from portal.core.tenants.models import OperatorRole, Role, Tenant, User
from portal.prepared import instances, prepared_cursor
from portal.sql_files import Statements

sql = Statements(__file__, "access.sql")


class DeniedError(Http404):
    """Not a member, no such tenant, or too small a role: one answer, which a page gives as 404."""


class Action(Enum):
    """What somebody can want in a tenant."""

    READ = auto()  # usage and what it costs: one's own
    READ_ALL = auto()  # that of everybody in the tenant
    READ_INVOICES = auto()
    PAY = auto()
    MANAGE = auto()  # people, their roles and API keys


_OWN = frozenset({Action.READ})
_USE = _OWN | {Action.READ_ALL}
_VIEW = _USE | {Action.READ_INVOICES}
_BILLING = _VIEW | {Action.PAY}

ALLOWED: Mapping[Role, frozenset[Action]] = {
    Role.MEMBER: _USE,
    Role.VIEWER: _VIEW,
    Role.BILLING: _BILLING,
    Role.OWNER: _BILLING | {Action.MANAGE},
}
"""The one table of what each role may do in its tenant: for pages, API keys, and the team page, which shows it.

A tenant can have its members see less (`Tenant.members_see_own`).
"""

LABELS: Mapping[Action, str] = {
    Action.READ: gettext_noop("See their own jobs, and what they cost"),
    Action.READ_ALL: gettext_noop("See usage of everybody, its cost, jobs and wallets"),
    Action.READ_INVOICES: gettext_noop("See invoices and payments"),
    Action.PAY: gettext_noop("Pay, top up wallets, save and remove cards, switch automatic payment"),
    Action.MANAGE: gettext_noop("Invite and remove people, change roles, make and revoke API keys"),
}
STAFF = frozenset({Action.READ, Action.READ_ALL, Action.READ_INVOICES})
"""Whoever runs the machines may look into any tenant, but neither pays nor manages in its name."""


class Right(Enum):
    """What an operator can want beyond a tenant."""

    READ = auto()  # every page, list and report
    AUDIT = auto()  # the history of changes
    TENANTS = auto()  # tenants, members, ownership of accounts, payers, subscriptions
    PLANS = auto()  # plans, prices, terms of one tenant
    CLOSES = auto()  # previews, closes, approvals
    CREDITS = auto()  # credit notes, voids, write-offs, wallet grants, manual lines
    PAYMENTS = auto()  # payments by hand, bank transfers, refunds, dunning
    CLUSTERS = auto()  # clusters, connections, pulls, watermarks, capacity
    JOBS = auto()  # acts on schedulers: blocks, nodes, jobs
    IMPORTS = auto()  # usage files, quarantine
    SETTINGS = auto()  # operators and their roles, sellers, taxes, limits, policies


_SUPPORT = frozenset({Right.READ, Right.AUDIT})

OPERATOR_RIGHTS: Mapping[OperatorRole, frozenset[Right]] = {
    OperatorRole.SUPPORT: _SUPPORT,
    OperatorRole.FINANCE: _SUPPORT
    | {Right.TENANTS, Right.PLANS, Right.CLOSES, Right.CREDITS, Right.PAYMENTS},
    OperatorRole.CLUSTER: frozenset({Right.READ, Right.CLUSTERS, Right.JOBS, Right.IMPORTS}),
    OperatorRole.ADMIN: frozenset(Right),
}
"""The one table of what each operator role may: for pages, the admin, commands that name a person, and the API."""


def rights_of(user: User | AnonymousUser) -> frozenset[Right]:
    """What the person may do as an operator; nothing for everybody else. No query."""
    if not isinstance(user, User) or not user.is_active or not user.operator_role:
        return frozenset()
    return OPERATOR_RIGHTS[OperatorRole(user.operator_role)]


def entered(*, user: User | AnonymousUser, slug: str, action: Action) -> tuple[Tenant, frozenset[Action]]:
    """The tenant in which `user` may do `action`, with all that they may; raises DeniedError. One query.

    What is read in its scope is what the person may see: `only_users` is set where that is their own usage alone.
    """
    return _entered(user, sql.ENTERED, {"slug": slug}, action)[:2]


def entered_among(
    *, user: User | AnonymousUser, slug: str, action: Action, most: int
) -> tuple[Tenant, frozenset[Action], list[tuple[str, str]]]:
    """As `entered`, with slug and name of the first of `tenants_of`. One query."""
    values = {"slug": slug, "most": most, "everywhere": bool(getattr(user, "operator_role", ""))}
    tenant, allowed, (slugs, names) = _entered(user, sql.ENTERED_AMONG, values, action)
    return tenant, allowed, list(zip(slugs or (), names or (), strict=True))


def _entered(
    user: User | AnonymousUser, statement: str, values: Mapping[str, Any], action: Action
) -> tuple[Tenant, frozenset[Action], Sequence[Any]]:
    if not isinstance(user, User) or not user.is_active:
        raise DeniedError("nobody is signed in")
    with prepared_cursor() as cursor:
        cursor.execute(statement, {**values, "user": user.pk})
        for tenant, role, names, *rest in instances(cursor, Tenant):
            allowed = narrow(tenant, user, role=role, names=names or ())
            if action in allowed:
                return tenant, allowed, rest
    raise DeniedError("no such tenant for this person")


def tenants_of(user: User) -> QuerySet[Tenant]:
    """The tenants that the person may open, by name."""
    tenants = Tenant.objects.all() if user.operator_role else Tenant.objects.filter(memberships__user=user)
    return tenants.order_by("name", "pk")


def allowed_in(tenant: Tenant, user: User) -> frozenset[Action]:
    """All that the person may do in the tenant. One query."""
    return _allowed(user, tenant, tenant.memberships.filter(user=user).values_list("role", flat=True).first())


def narrow(tenant: Tenant, user: User, *, role: str | None, names: Sequence[str]) -> frozenset[Action]:
    """All that the person, who is called so on the clusters, may do in the tenant by their role; None: no member.

    The tenant's scope shows what they may see then. No query.
    """
    allowed = _allowed(user, tenant, role)
    tenant.scheduler_users = tuple(names)
    tenant.only_users = None if Action.READ_ALL in allowed else tenant.scheduler_users
    return allowed


def _allowed(user: User, tenant: Tenant, role: str | None) -> frozenset[Action]:
    allowed = ALLOWED[Role(role)] if role else frozenset()
    if role == Role.MEMBER and tenant.members_see_own:
        allowed = _OWN
    return allowed | STAFF if user.operator_role else allowed
