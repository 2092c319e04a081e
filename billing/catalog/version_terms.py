"""Writing the terms of a version of a plan: allowances, fees, a commitment, discounts.

What was used or billed is never changed, only followed.

Each term is for all who are on the version, or, with `tenant`, for that one alone: then it has dates, and stands in
the place of the plan's of its name while it holds. One may be given to a tenant at any time, for what is past too:
what it changes in periods that are billed comes as a correction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date
from decimal import Decimal
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import DecimalField, Q, QuerySet

from billing.catalog.plans import PlanError, billed
from billing.models import (
    Allowance,
    Commitment,
    Discount,
    Fee,
    InvoiceLine,
    LineKind,
    PlanVersion,
    Settles,
)
from billing.rules import fees as rules
from billing.rules.errors import RuleError
from billing.rules.meters import PerUnit
from billing.rules.period import midnight
from billing.rules.tiers import Tier
from portal.core.tenants.models import Tenant
from portal.excerpt import quoted

T = TypeVar("T", Allowance, Commitment, Discount, Fee)

Term = Allowance | Commitment | Discount | Fee

COMMITMENT = "Minimum commitment"


def set_allowance(
    *,
    version: PlanVersion,
    name: str,
    hours: Decimal,
    rollover: bool | None = None,
    tenant: Tenant | None = None,
    valid_from: date | None = None,
    valid_until: date | None = None,
) -> Allowance:
    """So many units of each period are included, for the prices of the version that name it.

    Asked again, the same allowance; another size only while it is not in use. A tenant's own is of an allowance that
    the plan has, and rolls over as that does; it may be of no units. Raises PlanError for what cannot be so.
    """
    if tenant is None or hours != 0:
        _checked(lambda: Tier(hours, Decimal(0)))  # bounded as a tier is
    plans_own = _plans_own(Allowance, version, name=name) if tenant else None
    if tenant is not None and plans_own is None:
        raise PlanError("tenant-allowance-unknown", name=quoted(name), tenant=tenant.slug)
    if plans_own is not None and rollover not in {None, plans_own.rollover}:
        raise PlanError("tenant-allowance-rollover", name=name, tenant=tenant)
    values = {"hours": hours, "rollover": plans_own.rollover if plans_own else bool(rollover)}
    return _set(Allowance, version, {"name": name}, values, _Dates(tenant, valid_from, valid_until))


def set_fee(
    *,
    version: PlanVersion,
    name: str,
    amount: Decimal,
    in_advance: bool | None = None,
    tenant: Tenant | None = None,
    valid_from: date | None = None,
    valid_until: date | None = None,
) -> Fee:
    """Each period costs that, whatever is used; as `set_allowance`.

    A tenant's own is billed when the plan's of its name is, unless told otherwise; it may be nothing.
    """
    _checked(lambda: (rules.Fee(amount), PerUnit(amount)))
    plans_own = _plans_own(Fee, version, name=name) if tenant else None
    advance = (plans_own is not None and plans_own.in_advance) if in_advance is None else in_advance
    values = {"amount": amount, "in_advance": advance}
    return _set(Fee, version, {"name": name}, values, _Dates(tenant, valid_from, valid_until))


def set_commitment(
    *,
    version: PlanVersion,
    amount: Decimal,
    overage_factor: Decimal | None = None,
    name: str = COMMITMENT,
    tenant: Tenant | None = None,
    valid_from: date | None = None,
    valid_until: date | None = None,
) -> Commitment:
    """The use of each period comes to that at least; what lies above counts `overage_factor` times. As `set_allowance`.

    A tenant's own has the plan's factor unless told otherwise; it may be nothing, and then has none: all use lies
    above it, and would cost more than with the plan's. Raises PlanError for a plan's own of nothing too.
    """
    factor = _factor(version, amount, tenant, valid_from) if overage_factor is None else overage_factor
    _checked(lambda: (rules.Commitment(amount, factor), PerUnit(amount)))
    if amount == 0 and tenant is None:
        raise PlanError("commitment-zero")
    values = {"name": name, "amount": amount, "overage_factor": factor}
    return _set(Commitment, version, {}, values, _Dates(tenant, valid_from, valid_until))


def _factor(version: PlanVersion, amount: Decimal, tenant: Tenant | None, begins: date | None) -> Decimal:
    """What holds where none is told: of a commitment that stands already, its own."""
    own = Commitment.objects.filter(version=version, tenant=tenant, valid_from=begins, amount=amount)
    if tenant and (existing := own.first()) is not None:
        return existing.overage_factor
    plans_own = _plans_own(Commitment, version) if tenant and amount else None
    return plans_own.overage_factor if plans_own else Decimal(1)


def set_discount(
    *,
    version: PlanVersion,
    name: str,
    valid_from: date | None,
    valid_until: date | None = None,
    percent: Decimal | None = None,
    amount: Decimal | None = None,
    tenant: Tenant | None = None,
) -> Discount:
    """A percentage, or an amount per period, off what the version charges, during [valid_from, valid_until).

    One that was billed can only be ended. A discount may be added to a version in use: what it takes off
    periods that are billed comes back as a correction. A tenant's own may be of 0 percent, so that it gets none.
    """
    if tenant is None or percent != 0 or amount is not None:
        _checked(lambda: rules.Discount(percent, amount))
    values = {"percent": percent, "amount": amount}
    return _set(Discount, version, {"name": name}, values, _Dates(tenant, valid_from, valid_until))


@transaction.atomic
def end_term(*, term: Term, on: date | None) -> None:
    """Have what has dates hold up to that day, exclusive, or without an end; asked again, nothing changes.

    PlanError for what has no dates.
    """
    if term.valid_from is None:
        raise PlanError("term-of-version", term=term)
    model = type(term)
    row = model._default_manager.select_for_update(of=("self",)).select_related("tenant")
    stored = row.get(pk=term.pk)
    _refuse_dates(stored.name, stored.valid_from, on)
    _refuse_second(stored, on)
    if stored.valid_until != on:
        stored.valid_until = on
        stored.save(update_fields=["valid_until"])


@transaction.atomic
def drop_term(*, term: Term) -> None:
    """Delete what was given to one tenant and never billed. PlanError for what was: it can be ended."""
    if term.tenant_id is None:
        raise PlanError("version-in-use", version=term.version)
    if stated(term):
        raise PlanError("term-billed", term=term, tenant=term.tenant)
    term.delete()


SETTERS: Mapping[type[Term], Callable[..., Term]] = {
    Allowance: set_allowance,
    Fee: set_fee,
    Commitment: set_commitment,
    Discount: set_discount,
}
"""What writes each kind of term; all but `version`, `name`, `tenant` and the dates are columns of that kind alone."""

_SHARED = {"id", "version", "name", "tenant", "valid_from", "valid_until"}


def own_columns(model: type[Term]) -> list[str]:
    """What terms of this kind alone have: `amount` and `in_advance` of a fee."""
    return [field.name for field in model._meta.concrete_fields if field.name not in _SHARED]


class _Dates:
    """For whom, and when: of one tenant from a day on. PlanError where one is said without the other."""

    def __init__(self, tenant: Tenant | None, valid_from: date | None, valid_until: date | None) -> None:
        self.tenant, self.valid_from, self.valid_until = tenant, valid_from, valid_until

    def refuse(self, model: type[T], name: str) -> None:
        if self.tenant is not None and self.valid_from is None:
            raise PlanError("term-without-first-day", name=name, tenant=self.tenant.slug)
        dated = self.valid_from is not None or self.valid_until is not None
        if self.tenant is None and dated and model is not Discount:
            raise PlanError("term-dates", name=name)


def _set(
    model: type[T], version: PlanVersion, key: dict[str, Any], values: dict[str, Any], dates: _Dates
) -> T:
    name = key.get("name") or values["name"]
    dates.refuse(model, name)
    with transaction.atomic():
        version = PlanVersion.objects.select_for_update().select_related("plan").get(pk=version.pk)
        if version.plan.settles == Settles.WALLET:
            raise PlanError("wallet-plan-terms", plan=version.plan)
        key = key | {"tenant": dates.tenant, "valid_from": dates.valid_from}
        existing = model._default_manager.filter(version=version, **key).first()
        until = dates.valid_until or (existing.valid_until if existing else None)
        row = existing or model(version=version, **key)
        _refuse_dates(f"The {model.__name__.lower()} {name}", dates.valid_from, until)
        return _write(row, values | {"valid_until": until}, new=existing is None)


def _write(row: T, values: dict[str, Any], *, new: bool) -> T:
    """Save the row if it is new or something of it differs, and may."""
    _refuse_digits(row, values)
    differing = {name for name, value in values.items() if getattr(row, name) != value}
    late = row.tenant_id is not None or isinstance(row, Discount)  # whose dates say from when
    if new and not late and billed(row.version):
        raise PlanError("version-in-use", version=row.version)
    if not new and differing - {"valid_until"}:
        if row.tenant_id is None and billed(row.version):
            raise PlanError("version-in-use", version=row.version)
        if row.tenant_id is not None and stated(row):
            raise PlanError("term-billed", term=row, tenant=row.tenant)
    for name in differing:
        setattr(row, name, values[name])
    _refuse_second(row, row.valid_until)
    if new or differing:
        row.save()
    return row


def _refuse_digits(row: Term, values: Mapping[str, Any]) -> None:
    """Raise PlanError for a number that its column cannot hold."""
    for name, value in values.items():
        column = row._meta.get_field(name)
        if isinstance(column, DecimalField) and value is not None:
            try:
                column.run_validators(value)
            except ValidationError as error:
                most = 10 ** (column.max_digits - column.decimal_places)
                places = column.decimal_places
                raise PlanError("term-number", column=name, most=most, places=places, value=value) from error


def _refuse_dates(name: str, begins: date | None, ends: date | None) -> None:
    if begins is not None and ends is not None and ends <= begins:
        raise PlanError("term-ends-before-it-begins", name=name, ends=ends)


def _refuse_second(row: Term, ends: date | None) -> None:
    """Courtesy: constraints such as `tenant_has_one_own_fee_at_a_time` are the law."""
    if row.tenant is None:
        return
    model = type(row)
    others = model._default_manager.filter(version=row.version, tenant=row.tenant).exclude(pk=row.pk)
    if not isinstance(row, Commitment):
        others = others.filter(name=row.name)
    others = others.filter(Q(valid_until=None) | Q(valid_until__gt=row.valid_from))
    if ends is not None:
        others = others.filter(valid_from__lt=ends)
    other = others.order_by("valid_from").first()
    if other is not None:
        until = f"until {other.valid_until}" if other.valid_until else "without an end"
        raise PlanError(
            "terms-overlap",
            term=row,
            tenant=row.tenant.slug,
            valid_from=row.valid_from,
            since=other.valid_from,
            until=until,
        )


def stated(row: Term) -> bool:
    """Whether a line states what is the tenant's own, whoever pays, as the database asks before it lets it change."""
    if row.tenant is None or row.valid_from is None:
        return False
    lines = _stating(InvoiceLine.objects.filter(service_period__tenant=row.tenant), row)
    ends = lines.values_list("service_period__end", "service_period__timezone").distinct()
    return any(end > midnight(row.valid_from, zone=ZoneInfo(zone)) for end, zone in ends)


def _stating(lines: QuerySet[InvoiceLine], row: Term) -> QuerySet[InvoiceLine]:
    if isinstance(row, Allowance):
        prices = row.version.prices.filter(allowance__name=row.name)
        return lines.filter(kind=LineKind.USAGE, price_id__in=prices.values("pk"))
    if isinstance(row, Commitment):
        of_version = Commitment.objects.filter(version=row.version)
        return lines.filter(kind=LineKind.COMMITMENT, term_id__in=of_version.values("pk"))
    return lines.filter(kind=LineKind.FEE if isinstance(row, Fee) else LineKind.DISCOUNT, term_id=row.pk)


def _plans_own(model: type[T], version: PlanVersion, **named: str) -> T | None:
    return model._default_manager.filter(version=version, tenant=None, **named).first()


def _checked(make: Any) -> None:
    try:
        make()
    except RuleError as error:
        raise PlanError(error.code, **error.values) from error


def allowance_of(version: PlanVersion, name: str) -> Allowance:
    """The version's allowance of that name. PlanError where there is none."""
    allowance = _plans_own(Allowance, version, name=name)
    if allowance is None:
        raise PlanError("allowance-unknown", name=quoted(name))
    return allowance
