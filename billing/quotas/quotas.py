"""Setting and ending quotas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from enum import Enum
from typing import Any

from django.core.exceptions import ValidationError
from django.core.validators import validate_slug
from django.db import transaction
from django.db.models import QuerySet

from billing.catalog.tenant_lock import lock
from billing.models import Quota, QuotaChange, QuotaPeriod, QuotaReview, QuotaSetBy, ReservedAmount
from billing.models.quota_terms import LONGEST_NAME, SCOPE, plain
from billing.models.quotas import QuotaQuerySet
from billing.quotas.terms import QuotaError, QuotaTerms
from portal.core.tenants.models import Tenant
from portal.excerpt import quoted

COLUMNS = tuple(QuotaTerms.__dataclass_fields__)
FREELY_CHANGED = (
    *("amount", "cap", "carry_over", "carry_overdraft", "thresholds", "forecasts"),
    *("repeat_every", "recipients", "action", "grace_minutes", "ends_older", "watch", "set_by"),
    *("reservation_cap", "demand_above", "borrows_from"),
)
"""What may change of a quota that goes on counting the same."""
OF_RESERVATIONS = {"measure", "unit", "project", *SCOPE}
"""By what a job's part of a quota is known: where they change, what was reserved of it is nothing of what it is now."""
FREE = ("amount", "thresholds", "forecasts", "repeat_every", "recipients", "reservation_cap")
"""What owners may change of a quota that has a cap."""

ADDRESS_OF_CHECKS = "check"
"""Of the API, where the names of quotas have theirs."""


ALIKE = ("measure", "unit", "every", "first_day", "end_day", "hours", "credits")
"""What two quotas have to have in common to be compared, or to share."""

OF_PLANS = "plan-"
"""So begin the names of quotas that come with a plan, and no others."""
OF_DEBTS = "debt-"
"""And those of quotas that come with the debt of a wallet."""


class Setter(Enum):
    """In whose name a quota is set."""

    OWNER = "owner"  # within the operator's cap
    OPERATOR = "operator"


@transaction.atomic
def set_quota(*, tenant: Tenant, name: str, terms: QuotaTerms, by: Setter, moment: datetime) -> Quota:
    """Have the tenant's quota of this name be so, from now on; again with the same, nothing changes.

    It holds at once, for the running period as well; what is passed already is not told of where the quota is new.
    Raises QuotaError, or RuleError for a value that none takes.
    """
    tenant = lock(tenant)
    rows = Quota.objects.in_force().select_for_update(of=("self",))
    row = rows.filter(tenant=tenant, name=name).first()
    others = list(list_quotas(tenant).exclude(name=name))
    values = _checked_values(tenant, name, row, terms, by, moment, others)
    row = write_quota(row, tenant=tenant, name=name, values=values, moment=moment)
    QuotaReview.objects.bulk_create([QuotaReview(tenant=tenant, next_at=moment)], ignore_conflicts=True)
    QuotaChange.objects.create(tenant=tenant)
    return row


def write_quota(
    row: Quota | None, *, tenant: Tenant, name: str, values: dict[str, Any], moment: datetime
) -> Quota:
    """Have the row be so, made where there is none; the same again is not written."""
    values = values | {"counts_since": _counts_since(row, values, moment)}
    if row is None:
        return Quota.objects.create(tenant=tenant, name=name, created_at=moment, **values)
    changed = {column for column, value in values.items() if getattr(row, column) != value}
    if changed:
        if changed & OF_RESERVATIONS:
            ReservedAmount.objects.filter(quota=row, reservation__released_at=None).delete()
        for column, value in values.items():
            setattr(row, column, value)
        row.save()
        # So that the next period knows it, whether or not the running one is looked at again.
        periods = QuotaPeriod.objects.filter(quota=row, start__lte=moment, end__gt=moment)
        periods.update(amount=row.amount)
    return row


def suppose_quota(
    *,
    tenant: Tenant,
    name: str,
    terms: QuotaTerms,
    by: Setter,
    moment: datetime,
    rows: Sequence[Quota] | None = None,
) -> tuple[Quota, Quota | None]:
    """What `set_quota` would make, unsaved, and what there is now; refuses what it refuses, and keeps nothing.

    `rows`: the tenant's `list_quotas`, where these are read already.
    """
    rows = list(list_quotas(tenant)) if rows is None else rows
    row = next((row for row in rows if row.name == name), None)
    others = [other for other in rows if other.name != name]
    values = _checked_values(tenant, name, row, terms, by, moment, others)
    values["counts_since"] = _counts_since(row, values, moment)
    identity = {"pk": row.pk, "created_at": row.created_at} if row else {"pk": 0, "created_at": moment}
    return Quota(tenant=tenant, name=name, **identity, **values), row


def _counts_since(row: Quota | None, values: dict[str, Any], moment: datetime) -> datetime:
    same = row is not None and all(
        getattr(row, column) == value for column, value in values.items() if column not in FREELY_CHANGED
    )
    return row.counts_since if row is not None and same else moment


def _checked_values(
    tenant: Tenant,
    name: str,
    row: Quota | None,
    terms: QuotaTerms,
    by: Setter,
    moment: datetime,
    others: Sequence[Quota],
) -> dict[str, Any]:
    """By column what the quota is to be."""
    _refuse_plans_own(row)
    _check_name(name)
    if by is Setter.OWNER:
        terms = _within_cap(row, terms)
    terms = terms.checked(tenant, moment=moment)
    _check_pool(tenant, row, terms, others)
    _refuse_above_plan(terms, others, by)
    _refuse_above_parent(terms, others)
    is_capped = row is not None and row.cap is not None
    set_by = QuotaSetBy.OPERATOR if by is Setter.OPERATOR or is_capped else QuotaSetBy.OWNER
    return columns_of(terms) | {"set_by": set_by}


def columns_of(terms: QuotaTerms) -> dict[str, Any]:
    """By column what terms say."""
    values = {column: getattr(terms, column) for column in COLUMNS}
    return values | {column: list(values[column]) for column in ("thresholds", "forecasts", "recipients")}


@transaction.atomic
def end_quota(*, tenant: Tenant, name: str, by: Setter, moment: datetime) -> bool:
    """End it: nothing is counted or told from now on. False where there is none of this name (any more).

    Raises QuotaError where the operator has set a cap on it and an owner would end it.
    """
    tenant = lock(tenant)
    row = Quota.objects.in_force().select_for_update(of=("self",)).filter(tenant=tenant, name=name).first()
    if row is None:
        return False
    _refuse_plans_own(row)
    if by is Setter.OWNER and row.cap is not None:
        raise QuotaError("quota-capped", name=name)
    if row.lends:
        _refuse_borrowed(row, list(Quota.objects.in_force().filter(borrows_from=row).order_by("name")))
    row.ended_at = moment
    row.save(update_fields=["ended_at"])
    QuotaChange.objects.create(tenant=tenant)  # what it blocks is lifted by the next pass
    return True


def list_quotas(tenant: Tenant | None = None) -> QuerySet[Quota]:
    """Those in force, of one tenant or of all, by tenant and name."""
    rows: QuotaQuerySet = Quota.objects.in_force().select_related("tenant", "project", "borrows_from")
    if tenant is not None:
        rows = rows.filter(tenant=tenant)
    return rows.order_by("tenant__slug", "name", "pk")


def parents_of(terms: QuotaTerms | Quota, others: Sequence[Quota]) -> list[Quota]:
    """Those of the others, of the same measure and period, that count all of what this one counts, and more."""
    counting = [other for other in others if other.wallet_id is None]
    return [
        other for other in counting if _is_alike(other, terms) and _narrowings(other) < _narrowings(terms)
    ]


def is_same_scope(one: QuotaTerms | Quota, other: QuotaTerms | Quota) -> bool:
    """Whether both count the same, in the same periods."""
    return _is_alike(one, other) and _narrowings(one) == _narrowings(other)


def _is_alike(one: QuotaTerms | Quota, other: QuotaTerms | Quota) -> bool:
    return all(getattr(one, column) == getattr(other, column) for column in (*ALIKE, "lends"))


def is_replaced(row: Quota, others: Sequence[Quota]) -> bool:
    """Whether an operator has set one in the place of this one, which comes with the plan."""
    return row.set_by == QuotaSetBy.PLAN and any(
        other.set_by == QuotaSetBy.OPERATOR and is_same_scope(row, other) for other in others
    )


def _narrowings(quota: QuotaTerms | Quota) -> set[tuple[str, object]]:
    scope = {(column, getattr(quota, column)) for column in SCOPE if getattr(quota, column)}
    return scope | ({("project", quota.project.pk)} if quota.project is not None else set())


def _refuse_plans_own(row: Quota | None) -> None:
    if row is not None and row.set_by == QuotaSetBy.PLAN:
        raise QuotaError("quota-of-plan", name=row.name)
    if row is not None and row.set_by == QuotaSetBy.WALLET:
        raise QuotaError("quota-of-wallet", name=row.name)


def _check_pool(tenant: Tenant, row: Quota | None, terms: QuotaTerms, others: Sequence[Quota]) -> None:
    """Whoever borrows does so from a pool of the tenant that counts the same, and each project once."""
    borrowers = [other for other in others if row is not None and other.borrows_from_id == row.pk]
    if not terms.lends or any(_differ(other, terms) for other in borrowers):
        _refuse_borrowed(row, borrowers)
    pool = terms.borrows_from
    if pool is None:
        return
    if pool.tenant_id != tenant.pk or pool.ended_at is not None or not pool.lends:
        raise QuotaError("quota-pool-none", tenant=tenant, pool=quoted(pool.name))
    if _differ(pool, terms):
        raise QuotaError("quota-pool-differs", pool=pool.name)
    for other in others:
        if other.borrows_from_id == pool.pk and other.project == terms.project:
            raise QuotaError("quota-borrows-twice", other=other.name, pool=pool.name)


def _differ(one: Quota, other: QuotaTerms) -> bool:
    return any(getattr(one, column) != getattr(other, column) for column in ALIKE)


def _refuse_borrowed(row: Quota | None, borrowers: Sequence[Quota]) -> None:
    if row is not None and borrowers:
        names = ", ".join(other.name for other in borrowers)
        raise QuotaError("quota-pool-in-use", name=row.name, borrowers=names)


def _refuse_above_plan(terms: QuotaTerms, others: Sequence[Quota], by: Setter) -> None:
    """What an owner sets stands beside the plan's, which would stop it first."""
    for other in others:
        is_plans = other.set_by == QuotaSetBy.PLAN and is_same_scope(terms, other)
        if by is Setter.OWNER and is_plans and terms.amount > other.amount:
            raise QuotaError(
                "quota-of-plan-above",
                amount=plain(terms.amount),
                parent_amount=plain(other.amount),
                parent=other.name,
            )


def _refuse_above_parent(terms: QuotaTerms, others: Sequence[Quota]) -> None:
    standing = [other for other in others if not is_replaced(other, others)]
    for parent in sorted(parents_of(terms, standing), key=lambda parent: parent.amount):
        if terms.amount > parent.amount:
            raise QuotaError(
                "quota-above-parent",
                amount=plain(terms.amount),
                parent_amount=plain(parent.amount),
                parent=parent.name,
            )


def _within_cap(row: Quota | None, terms: QuotaTerms) -> QuotaTerms:
    """What an owner may say of it: the cap stays as it is, and what it counts, where there is one."""
    cap: Decimal | None = row.cap if row is not None else None
    if terms.cap not in (None, cap):
        raise QuotaError("quota-cap-of-operator")
    if row is None or cap is None:
        return terms
    terms = replace(terms, cap=cap, unit=terms.unit or row.unit)
    if any(
        getattr(terms, column) != getattr(QuotaTerms.of(row), column)
        for column in COLUMNS
        if column not in FREE
    ):
        raise QuotaError("quota-capped", name=row.name)
    if terms.amount > cap:
        raise QuotaError("quota-above-cap", cap=plain(cap))
    return terms


def _check_name(name: str) -> None:
    try:
        validate_slug(name)
    except ValidationError as error:
        raise QuotaError("quota-name") from error
    if len(name) > LONGEST_NAME or name != name.lower():
        raise QuotaError("quota-name")
    if name.startswith(OF_PLANS):
        raise QuotaError("quota-name-of-plan", prefix=OF_PLANS)
    if name.startswith(OF_DEBTS):
        raise QuotaError("quota-name-of-debt", prefix=OF_DEBTS)
    if name == ADDRESS_OF_CHECKS:
        raise QuotaError("quota-name-check", name=name)
