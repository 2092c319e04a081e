"""A version of a plan as a file has it: what `apply` would read to make it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date
from decimal import Decimal
from enum import Enum
from typing import Any, TypeVar

from billing.catalog.version_terms import Term
from billing.models import (
    PlanQuota,
    PlanVersion,
    Price,
    QuotaAction,
    QuotaCredits,
    QuotaEvery,
    QuotaMeasure,
    Settles,
)
from billing.models.plans import SELECTORS
from billing.rules.hours import HoursZone
from billing.rules.money import Money
from billing.rules.tiers import Scale
from portal.config_file.entries import Entry, Field, fields_of
from portal.config_file.plan_entries import (
    AllowanceEntry,
    CommitmentEntry,
    DiscountEntry,
    FeeEntry,
    PlanEntry,
    PriceEntry,
    TermEntry,
    TierEntry,
    WindowEntry,
)
from portal.config_file.quotas import PlanQuotaEntry, QuotaTermsEntry

T = TypeVar("T", bound=TermEntry)


def plan_text(version: PlanVersion, *, since: date | None = None) -> str:
    """The version as TOML, beginning on `since` where it is not None: then its prices begin there, too.

    Prices that have ended before that day are left out. What begins with the version names no day of its own, so that
    who moves the version's day moves all of it.
    """
    return entry_text(plan_entry(version, since=since))


def entry_text(plan: PlanEntry) -> str:
    """The version as TOML, as `plan_text` writes it."""
    lines, sections = ["[[plan]]"], []
    for name, value in pairs(plan):
        rows = value if isinstance(value, list) and value and isinstance(value[0], Entry) else []
        if name == "commitment" and len(rows) == 1 and rows[0].tenant is None:
            lines.append(_pair(name, rows[0]))
        elif rows:
            sections += [(name, row) for row in rows]
        else:
            lines.append(_pair(name, value))
    for name, row in sections:
        lines += ["", f"[[plan.{name}]]"]
        lines += [_pair(*pair) for pair in pairs(row) if pair != ("from", plan.begins)]
    return "\n".join(lines) + "\n"


def plan_entry(version: PlanVersion, *, since: date | None = None) -> PlanEntry:
    """What the version says, beginning with `since` where it is not None."""
    plan, first = version.plan, since or version.effective_from
    prices = version.prices.select_related("allowance", "tenant").order_by("position", "pk")
    return PlanEntry(
        name=plan.name,
        currency=plan.currency,
        settles=None if plan.settles == Settles.INVOICE else Settles(plan.settles),
        public=plan.public or None,
        starting_credit=Decimal(Money.from_minor(plan.starting_credit, plan.currency).text)
        if plan.starting_credit
        else None,
        charges=list(version.charges),
        since=first,
        commitments=_terms(CommitmentEntry, version, since),
        allowances=_terms(AllowanceEntry, version, since),
        fees=_terms(FeeEntry, version, since),
        discounts=_terms(DiscountEntry, version, since),
        quotas=[_quota(row) for row in version.quotas.order_by("pk")],
        prices=[_price(price, since) for price in prices if not _ended(price.valid_until, since)],
    )


def _quota(row: PlanQuota) -> PlanQuotaEntry:
    values: dict[str, Any] = {
        field.name: getattr(row, field.name, None) for field in fields_of(PlanQuotaEntry)
    }
    measure = QuotaMeasure(row.measure)
    return PlanQuotaEntry(
        **values
        | {
            "begins": row.first_day,
            "ends": row.end_day,
            "measure": measure,
            "unit": "" if measure is QuotaMeasure.MONEY else row.unit,  # it is the plan's
            "every": QuotaEvery(row.every),
            "credits": QuotaCredits(row.credits),
            "action": QuotaAction(row.action),
        }
    )


def _ended(until: date | None, since: date | None) -> bool:
    return since is not None and until is not None and until <= since


def _terms(kind: type[T], version: PlanVersion, since: date | None) -> list[T]:
    """Those of the version; without what one tenant had of its own until then."""
    rows = kind.model._default_manager.filter(version=version).select_related("tenant").order_by("pk")
    return [
        _term(kind, row, since) for row in rows if row.tenant is None or not _ended(row.valid_until, since)
    ]


def _term(kind: type[T], row: Term, since: date | None) -> T:
    values: dict[str, Any] = {field.name: getattr(row, field.name) for field in fields_of(kind)}
    if row.tenant is None:
        values = {name: None if value is False else value for name, value in values.items()}
        return kind(**values)
    begins = max(values["valid_from"], since or values["valid_from"])
    if kind is AllowanceEntry:
        values["rollover"] = None  # it is the plan's
    return kind(**values | {"tenant": row.tenant.slug, "valid_from": begins})


def _price(price: Price, since: date | None) -> PriceEntry:
    scale, windows = price.scale, price.hours.get("windows", ())
    zone = HoursZone(price.hours.get("zone", HoursZone.TENANT))
    return PriceEntry(
        meter=price.meter,
        where={
            name: list(values) for name, column in SELECTORS.items() if (values := getattr(price, column))
        },
        windows=[
            WindowEntry(days=window["days"], begins=window["from"], ends=window["to"], zone=zone)
            for window in windows
        ],
        model=Scale(price.model),
        tiers=[
            TierEntry(up_to=_number(tier["up_to"]), unit_price=Decimal(tier["unit_price"]))
            for tier in scale.get("tiers", ())
        ],
        package=_number(scale.get("size")),
        package_price=_number(scale.get("price")),
        unit_price=None if scale else price.unit_price,
        allowance=price.allowance.name if price.allowance else None,
        tenant=price.tenant.slug if price.tenant else None,
        since=max(price.valid_from, since or price.valid_from),
        until=price.valid_until,
    )


def _number(text: str | None) -> Decimal | None:
    return None if text is None else Decimal(text)


def pairs(entry: Entry) -> Iterable[tuple[str, Any]]:
    """What the entry says by key, its own fields before those of its base; what holds by default is left out."""
    base = type(entry).__mro__[1]
    shared = {field.name for field in fields_of(base)} if issubclass(base, TermEntry) else set()
    for field in sorted(fields_of(type(entry)), key=lambda field: field.name in shared):
        value = getattr(entry, field.name)
        if not _is_implied(entry, field, value):
            yield field.key, value


def _is_implied(entry: Entry, field: Field, value: Any) -> bool:
    if field.required or field.name == "thresholds":  # that there is none is said, too
        return False
    if isinstance(entry, QuotaTermsEntry) and value == field.default:
        return True
    return value is None or value in ([], {}) or (isinstance(value, Enum) and value == field.default)


def _pair(name: str, value: Any) -> str:
    return f"{name} = {_value(value)}"


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, Decimal):
        return f'"{value.normalize():f}"'
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Entry):
        value = dict(pairs(value))
    if isinstance(value, Mapping):
        return "{ " + ", ".join(_pair(name, inner) for name, inner in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(_value(inner) for inner in value) + "]"
    return '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"'
