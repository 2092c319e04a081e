"""The fields of a plan: one table of them, from which reading, comparing, writing back and moving a draft follow."""

from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Self

from django.core.validators import validate_slug

from billing.catalog.version_terms import Term
from billing.models import Allowance, Commitment, Discount, Fee, Resource, Settles
from billing.models.plans import SELECTORS
from billing.rules.hours import EVERY_DAY, Hours, HoursZone, Window, days_of, seconds_of
from billing.rules.money import TOKENS, is_currency
from billing.rules.tiers import Scale
from portal.config_file.entries import Entry, Rule, key
from portal.config_file.quotas import PlanQuotaEntry
from portal.config_file.toml_table import Table
from portal.config_file.toml_values import texts

Slug = Annotated[str, Rule(longest=50, check=validate_slug)]
Name = Annotated[str, Rule(longest=100)]
KEYS_OF_MODEL = {
    Scale.PER_UNIT: ("unit_price",),
    Scale.GRADUATED: ("tiers",),
    Scale.VOLUME: ("tiers",),
    Scale.PACKAGE: ("package", "package_price"),
}
TIERS = 'tiers = [{ up_to = 100, unit_price = "3" }, { unit_price = "2" }]'


class WindowEntry(Entry, frozen=True):
    noun: ClassVar[str] = "window"
    days: Annotated[str, Rule(check=days_of)] = EVERY_DAY
    begins: Annotated[str, Rule(check=seconds_of)] = key(name="from", default="00:00")
    ends: Annotated[str, Rule(check=seconds_of)] = key(name="to", default="24:00")
    zone: HoursZone = HoursZone.TENANT

    @classmethod
    def complete(cls, table: Table, values: dict[str, Any]) -> None:
        if not any(error.startswith(table.name) for error in table.errors):
            try:
                cls(**values).window()
            except ValueError as error:
                table.errors.append(f"{table.name}: {error}")

    def window(self) -> Window:
        end = seconds_of(self.ends) or seconds_of("24:00")
        return Window(days_of(self.days), seconds_of(self.begins), end)


class TierEntry(Entry, frozen=True, kw_only=True):
    noun: ClassVar[str] = "tier"
    up_to: Decimal | None = None
    unit_price: Decimal


def _selectors(table: Table, name: str) -> dict[str, list[str]]:
    within = table.table(name)
    values = {
        selector: chosen for selector in SELECTORS if (chosen := within.value(selector, texts)) is not None
    }
    within.refuse_other_keys()
    for selector, chosen in values.items():
        if not chosen:
            within.wrong(selector, "is an empty list; leave it out to select everything.")
    return values


class PriceEntry(Entry, frozen=True, kw_only=True):
    noun: ClassVar[str] = "price"
    meter: Annotated[str, Rule(longest=40)]
    where: Annotated[dict[str, list[str]], Rule(read=_selectors)] = key(default_factory=dict)
    windows: Annotated[list[WindowEntry], Rule(single=True)] = key(name="hours", default_factory=list)
    model: Scale = Scale.PER_UNIT
    tiers: list[TierEntry] = key(default_factory=list)
    package: Decimal | None = None
    package_price: Decimal | None = None
    unit_price: Decimal | None = None
    allowance: Name | None = None
    tenant: Slug | None = None
    since: Annotated[date, Rule(missing="; write from = 2017-01-01, for the price or for its plan.")] = key(
        name="from"
    )
    until: date | None = None
    correction: Annotated[str, Rule(filled=True)] | None = None

    @classmethod
    def complete(cls, table: Table, values: dict[str, Any]) -> None:
        model = values.get("model", Scale.PER_UNIT)
        needed = KEYS_OF_MODEL[model]
        for name in ("unit_price", "tiers", "package", "package_price"):
            if name in table.data and name not in needed:
                table.wrong(name, f"does not go with model {model}, which needs {' and '.join(needed)}.")
            elif name == "tiers" and name in needed and not table.data.get(name):
                table.wrong(name, f"is missing; write {TIERS}.")
            elif name in needed and name not in table.data:
                table.wrong(name, "is missing.")
        if table.data.get("hours") == []:
            table.wrong("hours", "is an empty list; leave it out for a price that always holds.")
        if len({window.zone for window in values.get("windows", ())}) > 1:
            table.wrong("hours", "tells its windows by two clocks; write the same zone in each.")
        if "from" not in table.data and (first := _day(table.outer)):
            values["since"] = first

    @property
    def hours(self) -> Hours | None:
        if not self.windows:
            return None
        return Hours(tuple(entry.window() for entry in self.windows), self.windows[0].zone)

    @property
    def terms(self) -> dict[str, Any]:
        """As `billing.rules.tiers.of_terms` reads them."""
        if self.model == Scale.PACKAGE:
            return {"model": self.model, "size": _plain(self.package), "price": _plain(self.package_price)}
        if self.model == Scale.PER_UNIT:
            return {"model": self.model, "unit_price": _plain(self.unit_price)}
        tiers = [{"up_to": _plain(tier.up_to), "unit_price": _plain(tier.unit_price)} for tier in self.tiers]
        return {"model": self.model, "tiers": tiers}

    def moved(self, back: timedelta) -> PriceEntry:
        return self.replaced(since=self.since - back, until=self.until and self.until - back)


def _plain(number: Decimal | None) -> str | None:
    return None if number is None else f"{number:f}"


class TermEntry(Entry, frozen=True, kw_only=True):
    """What a plan has beside its prices: for all, as long as the version holds, or for one tenant from a day on.

    Its other fields are the columns of its model.
    """

    named_by: ClassVar[str] = "name"
    model: ClassVar[type[Term]]
    missing_day: ClassVar[str] = "the day from which it is the tenant's own"
    tenant: Annotated[str, Rule(longest=50)] | None = None
    valid_from: date | None = key(name="from", default=None)
    valid_until: date | None = key(name="until", default=None)

    @classmethod
    def complete(cls, table: Table, values: dict[str, Any]) -> None:
        values["tenant"] = values.get("tenant") or None
        if values["tenant"] is None and cls is not DiscountEntry:
            for name in sorted(table.data.keys() & {"from", "until"}):
                table.wrong(
                    name, "goes with `tenant`: what is for all holds as long as this version of the plan."
                )
        elif "from" not in table.data and (first := _first_day(table.outer)):
            values["valid_from"] = first
        elif "from" not in table.data:
            table.wrong("from", f"is missing; write from = 2017-01-01, {cls.missing_day}.")

    def moved(self, back: timedelta) -> Self:
        begins, ends = self.valid_from, self.valid_until
        return self.replaced(valid_from=begins and begins - back, valid_until=ends and ends - back)


class AllowanceEntry(TermEntry, frozen=True, kw_only=True):
    noun: ClassVar[str] = "allowance"
    model: ClassVar = Allowance
    name: Name
    hours: Decimal
    rollover: bool | None = None


class FeeEntry(TermEntry, frozen=True, kw_only=True):
    noun: ClassVar[str] = "fee"
    model: ClassVar = Fee
    name: Name
    amount: Decimal
    in_advance: bool | None = None


class CommitmentEntry(TermEntry, frozen=True, kw_only=True):
    noun: ClassVar[str] = "commitment"
    model: ClassVar = Commitment
    amount: Decimal
    overage_factor: Decimal | None = None


class DiscountEntry(TermEntry, frozen=True, kw_only=True):
    noun: ClassVar[str] = "discount"
    model: ClassVar = Discount
    missing_day: ClassVar[str] = "for the discount or for its plan"
    name: Name
    percent: Decimal | None = None
    amount: Decimal | None = None


def _currency(code: str) -> None:
    if not is_currency(code) and code != TOKENS:
        raise ValueError(
            f"it is no currency; write its code of ISO 4217, such as USD or EUR, or {TOKENS} for tokens."
        )


CHARGES = ", ".join(Resource.values)


class PlanEntry(Entry, frozen=True, kw_only=True):
    """One version of a plan."""

    noun: ClassVar[str] = "plan"
    named_by: ClassVar[str] = "name"
    name: Slug
    currency: Annotated[str, Rule(check=_currency)]
    settles: Settles | None = None
    public: bool | None = None
    starting_credit: Decimal | None = None
    charges: Annotated[list[str], Rule(missing=f"; list what is charged: {CHARGES}, meters.")]
    since: date | None = key(name="from", default=None)  # None: that of the first of its prices
    commitments: Annotated[list[CommitmentEntry], Rule(single=True)] = key(
        name="commitment", default_factory=list
    )
    allowances: list[AllowanceEntry] = key(name="allowance", default_factory=list)
    fees: list[FeeEntry] = key(name="fee", default_factory=list)
    discounts: list[DiscountEntry] = key(name="discount", default_factory=list)
    quotas: list[PlanQuotaEntry] = key(name="quota", default_factory=list)
    prices: list[PriceEntry] = key(name="price", default_factory=list)

    @classmethod
    def complete(cls, table: Table, values: dict[str, Any]) -> None:
        del values
        correct = not any(error.startswith(table.name) for error in table.errors)
        if correct and _first_day(table) is None:
            table.wrong("from", "is missing, and no price says from when it holds; write from = 2017-01-01.")

    @property
    def begins(self) -> date:
        return self.since or min(price.since for price in self.prices)

    @property
    def terms(self) -> list[TermEntry]:
        return [*self.allowances, *self.fees, *self.commitments, *self.discounts]

    @property
    def identity(self) -> str:
        return f"{self.name} from {self.begins}"

    def moved(self, back: timedelta) -> PlanEntry:
        """With all its dates so much earlier."""
        lists = {
            name: [entry.moved(back) for entry in getattr(self, name)]
            for name in ("commitments", "allowances", "fees", "discounts", "quotas", "prices")
        }
        return self.replaced(since=self.since and self.since - back, **lists)


def _day(plan: Table | None) -> date | None:
    """The plan's own first day."""
    day = plan.data.get("from") if plan else None
    return day if type(day) is date else None


def _first_day(plan: Table | None) -> date | None:
    """The plan's own, or that of the first of its prices."""
    prices = plan.data.get("price") if plan else None
    listed = prices if isinstance(prices, list) else []
    days = [day for entry in listed if isinstance(entry, dict) and type(day := entry.get("from")) is date]
    return _day(plan) or min(days, default=None)
