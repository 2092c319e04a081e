"""The shape of a configuration file, as plain values. None: the file does not say, so it stays as it is."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

from django.core.exceptions import ValidationError
from django.core.validators import validate_email, validate_slug

from billing.models import Resource
from billing.models.plans import SELECTORS
from billing.rules.money import is_currency
from billing.rules.pricing import Meter
from clusters.models import ClusterKind
from portal.ops.config import connections
from portal.ops.config.connections import ConnectionEntry
from portal.ops.config.reading import Moment, Table, Written
from portal.tenants.models import Role, known_zone

SELLER_TEXTS = {
    "name": 200,
    "vat_id": 40,
    "registration": 200,
    "email": 254,
    "iban": 42,
    "bic": 11,
    "invoice_prefix": 12,
    "tax_name": 40,
}
"""Columns of the seller and how many characters each holds."""

PREFIX = re.compile(r"[A-Za-z0-9][A-Za-z0-9./_-]*", re.ASCII)


class ConfigError(Exception):
    """A file cannot be applied; `sentences` say all that is wrong with it. Nothing was changed."""

    def __init__(self, *sentences: str) -> None:
        self.sentences = sentences
        super().__init__("\n".join(sentences))


@dataclass(frozen=True, slots=True)
class ClusterEntry:
    name: str
    fields: dict[str, str]
    connection: ConnectionEntry | None


@dataclass(frozen=True, slots=True)
class PriceEntry:
    table: Table
    meter: str
    where: dict[str, list[str]]
    unit_price: Decimal
    since: date
    until: date | None


@dataclass(frozen=True, slots=True)
class PlanEntry:
    """One version of a plan. `said_from`: the file names its first day, so it need not be looked for."""

    table: Table
    name: str
    currency: str
    charges: list[str]
    since: date
    said_from: bool
    prices: list[PriceEntry]


@dataclass(frozen=True, slots=True)
class AccountEntry:
    table: Table
    cluster: str
    account: str
    project: str
    since: Moment | None
    until: Moment | None


@dataclass(frozen=True, slots=True)
class TenantEntry:
    table: Table
    slug: str
    fields: dict[str, Any]
    plan: str | None
    plan_from: Moment | None
    accounts: list[AccountEntry]
    members: list[tuple[str, str]]  # e-mail address, role


@dataclass(frozen=True, slots=True)
class File:
    seller: dict[str, str]
    clusters: list[ClusterEntry]
    plans: list[PlanEntry]
    tenants: list[TenantEntry]


def parse(text: str) -> File:
    """The file's content. Raises ConfigError with every mistake that can be told without the database."""
    errors: list[str] = []
    try:
        data = tomllib.loads(text, parse_float=Written)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"This is not TOML: {error}.") from error
    except ValueError as error:  # a date that is none
        raise ConfigError(f"This is not TOML: {error}.") from error
    top = Table("the file", data, errors)
    file = File(
        seller=_seller(top),
        clusters=[c for table in top.tables("cluster", _named("cluster", "name")) if (c := _cluster(table))],
        plans=[p for table in top.tables("plan", _named("plan", "name")) if (p := _plan(table))],
        tenants=[t for table in top.tables("tenant", _named("tenant", "slug")) if (t := _tenant(table))],
    )
    top.done()
    errors += _twice("cluster", (cluster.name for cluster in file.clusters))
    errors += _twice("plan", (f"{plan.name} from {plan.since}" for plan in file.plans))
    errors += _twice("tenant", (tenant.slug for tenant in file.tenants))
    if errors:
        raise ConfigError(*errors)
    return file


def _named(noun: str, key: str) -> Any:
    def name(place: int, data: Mapping[str, Any]) -> str:
        return f'{noun} "{data[key]}"' if isinstance(data.get(key), str) else f"{noun} {place}"

    return name


def _twice(noun: str, names: Iterable[str]) -> list[str]:
    return [
        f'{noun} "{name}" stands in the file twice.' for name, times in Counter(names).items() if times > 1
    ]


def _seller(top: Table) -> dict[str, str]:
    table = top.table("seller")
    table.name = "seller"
    checks: dict[str, Callable[[str], None]] = {"email": validate_email, "invoice_prefix": _prefix}
    read = {
        key: table.text(key, longest=longest, check=checks.get(key)) for key, longest in SELLER_TEXTS.items()
    }
    read["address"] = table.lines("address")
    table.done()
    return {key: value for key, value in read.items() if value is not None}


def _cluster(table: Table) -> ClusterEntry | None:
    name = table.text("name", required=True, longest=100)
    kind = table.choice("kind", ClusterKind.values)
    timezone = table.text("timezone", longest=64, check=known_zone)
    within = table.table("connection")
    connection = connections.read(within) if "connection" in table.data else None
    table.done()
    said = {key: value for key, value in {"kind": kind, "timezone": timezone}.items() if value}
    return ClusterEntry(name, said, connection) if name else None


def _plan(table: Table) -> PlanEntry | None:
    errors = len(table.errors)
    name = table.text("name", required=True, longest=50, check=validate_slug)
    currency = table.text("currency", required=True, check=_currency)
    charges = table.texts("charges")
    if charges is None and "charges" not in table.data:
        table.wrong("charges", f"is missing; list what is charged: {', '.join(Resource.values)}.")
    for unknown in set(charges or ()) - set(Resource.values):
        table.wrong("charges", f"has {unknown!r} in it; allowed: {', '.join(Resource.values)}.")
    since = table.day("from")
    entries = table.tables("price", lambda place, _: f"{table.name}, price {place}")
    begins = [day for entry in entries if type(day := entry.data.get("from")) is date]
    first = since or min(begins, default=None)
    if first is None and len(table.errors) == errors:
        table.wrong("from", "is missing, and no price says from when it holds; write from = 2017-01-01.")
    prices = [price for entry in entries if (price := _price(entry, since))]
    table.done()
    if len(table.errors) > errors or name is None or currency is None or charges is None or first is None:
        return None
    return PlanEntry(table, name, currency, charges, first, since is not None, prices)


def _price(table: Table, plan_since: date | None) -> PriceEntry | None:
    meter = table.choice("meter", list(Meter), required=True)
    unit_price = table.decimal("unit_price", required=True)
    since, until = table.day("from"), table.day("until")
    if since is None and plan_since is None and "from" not in table.data:
        table.wrong("from", "is missing; write from = 2017-01-01, for the price or for its plan.")
    since = since or plan_since
    selecting = table.table("where")
    where = {name: values for name in SELECTORS if (values := selecting.texts(name)) is not None}
    selecting.done()
    for name, values in where.items():
        if not values:
            selecting.wrong(name, "is an empty list; leave it out to select everything.")
    table.done()
    if meter is None or unit_price is None or since is None:
        return None
    return PriceEntry(table, meter, where, unit_price, since, until)


def _tenant(table: Table) -> TenantEntry | None:
    slug = table.text("slug", required=True, longest=50, check=validate_slug)
    said = {
        "name": table.text("name", longest=200),
        "timezone": table.text("timezone", longest=64, check=known_zone),
        "anchor_day": table.whole("anchor_day", lowest=1, highest=31),
        "address": table.lines("address"),
        "vat_id": table.text("vat_id", longest=40),
        "email": table.text("email", longest=254, check=validate_email),
        "purchase_order": table.text("purchase_order", longest=100),
        "tax_rate": _tax_rate(table),
        "payment_terms_days": table.whole("payment_terms_days", lowest=0, highest=365),
    }
    plan, plan_from = table.text("plan"), table.moment("plan_from")
    if plan_from is not None and plan is None:
        table.wrong("plan_from", "says from when a plan applies, but `plan` is missing.")
    accounts = [
        account
        for entry in table.tables("accounts", lambda place, _: f"{table.name}, account {place}")
        if (account := _account(entry))
    ]
    members = [
        member
        for entry in table.tables("member", lambda place, _: f"{table.name}, member {place}")
        if (member := _member(entry))
    ]
    table.done()
    table.errors += _twice(f"{table.name}, member", (email for email, _ in members))
    if not slug:
        return None
    fields = {key: value for key, value in said.items() if value is not None}
    return TenantEntry(table, slug, fields, plan or None, plan_from, accounts, members)


def _account(table: Table) -> AccountEntry | None:
    cluster, account = table.text("cluster", required=True), table.text("account")
    if "account" not in table.data:
        table.wrong("account", "is missing.")
    project = table.text("project", longest=200)
    since, until = table.moment("since"), table.moment("until")
    table.done()
    if cluster is None or account is None:
        return None
    table.name = f"{table.name} ({cluster}/{account})"
    return AccountEntry(table, cluster, account, project or "", since, until)


def _member(table: Table) -> tuple[str, str] | None:
    email = table.text("email", required=True, longest=254, check=validate_email)
    role = table.choice("role", Role.values, required=True)
    table.done()
    return (email.lower(), role) if email and role else None


def _tax_rate(table: Table) -> Decimal | None:
    rate = table.decimal("tax_rate")
    if rate is None:
        return None
    places = -int(rate.as_tuple().exponent)
    if not 0 <= rate <= 100 or places > 3:
        table.wrong("tax_rate", f"is {rate}; it is a percentage from 0 to 100 with at most three decimals.")
    return rate


def _currency(code: str) -> None:
    if not is_currency(code):
        raise ValidationError("it is no currency; write its code of ISO 4217, such as USD or EUR.")


def _prefix(text: str) -> None:
    if not PREFIX.fullmatch(text):
        raise ValidationError("invoice numbers begin with letters, digits and . / _ - only.")
