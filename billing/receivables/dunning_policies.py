"""By which policy an invoice goes: set with dates, and read once for as many invoices as there are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import date
from functools import cache
from typing import Any

from django.db import transaction

from billing.models import DunningPolicy
from billing.rules.dunning_defaults import Policy, Terms, policy_of, problem
from portal.core.tenants.models import Tenant


class PolicyError(Exception):
    """A policy cannot be so; the message says why and what to do."""


@transaction.atomic
def set_policy(*, tenant: Tenant | None, since: date, **terms: Any) -> DunningPolicy:
    """Have the version that begins on that day say this, of everyone or of one tenant; what is not said stays.

    Again, nothing changes. Raises PolicyError for what cannot be meant together with what holds below it, or with
    what a tenant, or everyone, has from a later day on.
    """
    existing = DunningPolicy.objects.filter(tenant=tenant, since=since).first()
    row = existing or DunningPolicy(tenant=tenant, since=since)
    if existing is None or any(getattr(row, name) != value for name, value in terms.items()):
        for name, value in terms.items():
            setattr(row, name, value)
        if wrong := find_problem(row):
            raise PolicyError(wrong)
        row.save()
    return row


def combine_versions(row: DunningPolicy) -> Policy:
    """What holds from the version's first day on, with what it leaves to those below."""
    below = DunningPolicy.objects.filter(tenant=None) if row.tenant_id is not None else ()
    return policy_of(row.since, [version.terms() for version in below], [row.terms()])


def find_problem(row: DunningPolicy) -> str:
    """Why the version cannot be meant, by itself or with any other that it would hold with; "" where it can."""
    if wrong := problem(combine_versions(row)):
        return wrong
    before: dict[str | None, list[Terms]] = defaultdict(list)
    after: dict[str | None, list[Terms]] = defaultdict(list)
    for version in DunningPolicy.objects.select_related("tenant").order_by("tenant__slug", "since"):
        slug = version.tenant.slug if version.tenant else None
        before[slug].append(version.terms())
        if version.pk != row.pk and (version.tenant_id, version.since) != (row.tenant_id, row.since):
            after[slug].append(version.terms())
    own = row.tenant.slug if row.tenant else None
    after[own].append(row.terms())
    for slug in [own] if own else [slug for slug in before if slug]:
        days = {version.since for version in [*after[None], *after[slug]] if version.since >= row.since}
        for day in sorted(days):
            wrong = problem(policy_of(day, after[None], after[slug]))
            if wrong and wrong != problem(policy_of(day, before[None], before[slug])):
                return f"With the policy of {slug}, for what is due from {day} on: {wrong}"
    return ""


class Policies:
    """All versions of those tenants, or of everybody, and of the default. One query."""

    def __init__(self, tenants: Iterable[int] | None = None) -> None:
        rows = DunningPolicy.objects.all()
        if tenants is not None:
            rows = rows.filter(tenant__in=[*tenants]) | rows.filter(tenant=None)
        self._terms: dict[int | None, list[Terms]] = defaultdict(list)
        for row in rows:
            self._terms[row.tenant_id].append(row.terms())
        self.of = cache(self._of)

    def _of(self, tenant: int, due_on: date) -> Policy:
        return policy_of(due_on, self._terms.get(None, ()), self._terms.get(tenant, ()))
