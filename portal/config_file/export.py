"""A version of a plan as a file has it: what `apply` would read to make it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from typing import Any, NamedTuple, TypeVar

from billing.models import Allowance, Commitment, Discount, Fee, PlanVersion, Price, Settles
from billing.models.plans import SELECTORS
from billing.rules.hours import HoursZone

T = TypeVar("T", Allowance, Commitment, Discount, Fee)


class _Start(NamedTuple):
    """The version's first day; `anew`: what began before it begins with it."""

    day: date
    anew: bool

    def said(self, day: date) -> dict[str, date]:
        begins = max(day, self.day) if self.anew else day
        return {} if begins == self.day else {"from": begins}


def plan_text(version: PlanVersion, *, since: date | None = None) -> str:
    """The version as TOML, beginning on another day if one is told: then its prices begin there, too.

    Prices that have ended before that day are left out. What begins with the version names no day of its own, so that
    who moves the version's day moves all of it.
    """
    first = since or version.effective_from
    start = _Start(first, anew=since is not None)
    plan = version.plan
    lines = ["[[plan]]", _pair("name", plan.name), _pair("currency", plan.currency)]
    if plan.settles != Settles.INVOICE:
        lines.append(_pair("settles", plan.settles))
    lines += [_pair("charges", list(version.charges)), _pair("from", first)]
    lines += _terms(version, start)
    for price in version.prices.select_related("allowance", "tenant").order_by("position", "pk"):
        if since is None or price.valid_until is None or price.valid_until > first:
            lines += ["", *_price(price, start)]
    return "\n".join(lines) + "\n"


def _terms(version: PlanVersion, start: _Start) -> list[str]:
    lines = []
    commitments = _rows(Commitment, version, start)
    if len(commitments) == 1 and commitments[0].tenant is None:
        lines.append(_pair("commitment", _commitment(commitments[0], start)))
        commitments = []
    for noun, rows in (
        ("commitment", [_commitment(row, start) for row in commitments]),
        ("allowance", [_allowance(row, start) for row in _rows(Allowance, version, start)]),
        ("fee", [_fee(row, start) for row in _rows(Fee, version, start)]),
        ("discount", [_discount(row, start) for row in _rows(Discount, version, start)]),
    ):
        for row in rows:
            lines += ["", f"[[plan.{noun}]]", *(_pair(name, value) for name, value in row.items())]
    return lines


def _rows(model: type[T], version: PlanVersion, start: _Start) -> list[T]:
    """Those of the version; without what one tenant had of its own until then."""
    rows = model._default_manager.filter(version=version).select_related("tenant")
    return [
        row
        for row in rows.order_by("pk")
        if row.tenant is None or not start.anew or row.valid_until is None or row.valid_until > start.day
    ]


def _allowance(row: Allowance, start: _Start) -> dict[str, Any]:
    rollover = (row.rollover or None) if row.tenant is None else None
    return _some(name=row.name, hours=row.hours, rollover=rollover) | _alone(row, start)


def _fee(row: Fee, start: _Start) -> dict[str, Any]:
    advance = (row.in_advance or None) if row.tenant is None else row.in_advance
    return _some(name=row.name, amount=row.amount, in_advance=advance) | _alone(row, start)


def _commitment(row: Commitment, start: _Start) -> dict[str, Any]:
    return {"amount": row.amount, "overage_factor": row.overage_factor} | _alone(row, start)


def _discount(row: Discount, start: _Start) -> dict[str, Any]:
    said = _some(name=row.name, percent=row.percent, amount=row.amount)
    if row.tenant is not None:
        return said | _alone(row, start)
    own = {} if row.valid_from == start.day else _some(**{"from": row.valid_from})
    return said | own | _some(until=row.valid_until)


def _alone(row: Allowance | Commitment | Discount | Fee, start: _Start) -> dict[str, Any]:
    """For which tenant alone, and when."""
    if row.tenant is None or row.valid_from is None:
        return {}
    return {"tenant": row.tenant.slug} | start.said(row.valid_from) | _some(until=row.valid_until)


def _price(price: Price, start: _Start) -> list[str]:
    lines = ["[[plan.price]]", _pair("meter", price.meter)]
    where = {name: list(values) for name, column in SELECTORS.items() if (values := getattr(price, column))}
    if where:
        lines.append(_pair("where", where))
    if price.hours:
        clock = {} if price.hours["zone"] == HoursZone.TENANT else {"zone": price.hours["zone"]}
        lines.append(_pair("hours", [{**window, **clock} for window in price.hours["windows"]]))
    if price.scale:
        lines.append(_pair("model", price.model))
    if "tiers" in price.scale:
        tiers = [
            _some(up_to=_plain(tier["up_to"]), unit_price=tier["unit_price"]) for tier in price.scale["tiers"]
        ]
        lines.append(_pair("tiers", tiers))
    elif price.scale:
        lines += [_pair("package", price.scale["size"]), _pair("package_price", price.scale["price"])]
    else:
        lines.append(_pair("unit_price", price.unit_price))
    if price.allowance is not None:
        lines.append(_pair("allowance", price.allowance.name))
    if price.tenant is not None:
        lines.append(_pair("tenant", price.tenant.slug))
    span = start.said(price.valid_from) | _some(until=price.valid_until)
    return [*lines, *(_pair(name, day) for name, day in span.items())]


def _plain(number: str | None) -> Decimal | None:
    return None if number is None else Decimal(number)


def _some(**said: Any) -> dict[str, Any]:
    return {name: value for name, value in said.items() if value is not None}


def _pair(name: str, value: Any) -> str:
    return f"{name} = {_value(value)}"


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Decimal):
        return f'"{value.normalize():f}"'
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Mapping):
        return "{ " + ", ".join(_pair(name, inner) for name, inner in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(_value(each) for each in value) + "]"
    return '"' + str(value).replace("\\", "\\\\").replace('"', '\\"') + '"'
