"""The shape of a configuration file, as plain values. None: the file does not say, so it stays as it is."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

from django.core.exceptions import ValidationError
from django.core.validators import validate_email, validate_slug

from billing.models import Resource, Settles
from billing.models.plans import SELECTORS
from billing.reports.operating_costs import Cost
from billing.rules.hours import Hours
from billing.rules.money import TOKENS, is_currency
from billing.rules.pricing import Meter
from billing.rules.tiers import Scale
from clusters.declared import Node
from clusters.models import ClusterKind
from portal.config_file import (
    approvals,
    connections,
    costs,
    credential_input,
    dunning,
    nodes,
    parties,
    payers,
    schedules,
    taxes,
    wallets,
)
from portal.config_file.connections import ConnectionEntry
from portal.config_file.hours import read as read_hours
from portal.config_file.payers import PayerEntry
from portal.config_file.phases import Phase
from portal.config_file.phases import read as read_phases
from portal.config_file.taxes import RateEntry
from portal.config_file.terms import TermsEntry
from portal.config_file.terms import read as read_terms
from portal.config_file.toml_table import Moment, Table, Written
from portal.config_file.wallets import WalletEntry
from portal.core.tenants.models import Corrections, Role, ZeroInvoices, known_zone
from portal.excerpt import excerpt, quoted


class ConfigError(Exception):
    """A file cannot be applied; `sentences` say all that is wrong with it. Nothing was changed."""

    def __init__(self, *sentences: str) -> None:
        self.sentences = sentences
        super().__init__("\n".join(sentences))


@dataclass(frozen=True, slots=True)
class ClusterEntry:
    name: str
    fields: dict[str, Any]
    connection: ConnectionEntry | None
    telemetry: ConnectionEntry | None
    nodes: list[Node] | None


@dataclass(frozen=True, slots=True)
class PriceEntry:
    table: Table
    meter: str
    where: dict[str, list[str]]
    hours: Hours | None
    terms: dict[str, Any]  # as `billing.rules.tiers.of_terms` reads them
    allowance: str | None
    tenant: str | None
    since: date
    until: date | None


@dataclass(frozen=True, slots=True)
class PlanEntry:
    """One version of a plan. `said_from`: the file names its first day, so it need not be looked for."""

    table: Table
    name: str
    currency: str
    settles: Settles | None  # None: the file does not say
    charges: list[str]
    since: date
    said_from: bool
    prices: list[PriceEntry]
    terms: TermsEntry


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
    phases: list[Phase]
    accounts: list[AccountEntry]
    members: list[tuple[str, str]]  # e-mail address, role
    wallets: list[WalletEntry]
    approval_limits: approvals.Limits
    dunning: dunning.Said
    close: schedules.Days
    payer: PayerEntry | None


@dataclass(frozen=True, slots=True)
class File:
    """All that a file says, in the order in which it is written down."""

    seller: dict[str, str]
    approval_limits: approvals.Limits  # of everyone
    dunning: dunning.Said  # of everyone
    close: schedules.Days  # of everyone
    tax_rates: list[RateEntry]
    costs: list[Cost]
    clusters: list[ClusterEntry]
    plans: list[PlanEntry]
    tenants: list[TenantEntry]


def parse(text: str) -> File:
    """The file's content. Raises ConfigError with every mistake that can be told without the database."""
    errors: list[str] = []
    try:
        data = tomllib.loads(text, parse_float=Written)
    except (ValueError, RecursionError) as error:  # ValueError alone for a date that is none
        what, at, place = str(error).rpartition(" (at ")  # a key that stands twice is repeated whole
        raise ConfigError(f"This is not TOML: {excerpt(what)}{at}{excerpt(place)}.") from error
    top = Table("the file", data, errors)
    seller, approval_limits, late = _seller(top)
    file = File(
        seller=seller,
        approval_limits=approval_limits,
        dunning=late,
        close=schedules.read(top),
        costs=[
            cost
            for table in top.tables("operating_cost", lambda place, _: f"operating_cost {place}")
            if (cost := costs.read(table))
        ],
        tax_rates=[
            rate
            for table in top.tables("tax_rate", _named("tax_rate", "country"))
            if (rate := taxes.read(table))
        ],
        clusters=[c for table in top.tables("cluster", _named("cluster", "name")) if (c := _cluster(table))],
        plans=[p for table in top.tables("plan", _named("plan", "name")) if (p := _plan(table))],
        tenants=[t for table in top.tables("tenant", _named("tenant", "slug")) if (t := _tenant(table))],
    )
    top.done()
    errors += _twice("cluster", (cluster.name for cluster in file.clusters))
    errors += _twice(
        "tax_rate",
        (
            " ".join(filter(None, (each.country, each.region, each.category, f"from {each.since}")))
            for each in file.tax_rates
        ),
    )
    errors += _twice("plan", (f"{plan.name} from {plan.since}" for plan in file.plans))
    errors += _twice("tenant", (tenant.slug for tenant in file.tenants))
    if errors:
        raise ConfigError(*errors)
    return file


def _named(noun: str, key: str) -> Any:
    def name(place: int, data: Mapping[str, Any]) -> str:
        return f'{noun} "{excerpt(data[key])}"' if isinstance(data.get(key), str) else f"{noun} {place}"

    return name


def _twice(noun: str, names: Iterable[str]) -> list[str]:
    return [
        f'{noun} "{excerpt(name)}" stands in the file twice.'
        for name, times in Counter(names).items()
        if times > 1
    ]


def _seller(top: Table) -> tuple[dict[str, str], approvals.Limits, dunning.Said]:
    table = top.table("seller")
    table.name = "seller"
    read = parties.of_seller(table)
    read["corrections"] = table.choice("corrections", Corrections.values)
    read["zero_invoices"] = table.choice("zero_invoices", ZeroInvoices.values)
    approval_limits, late = approvals.read(table), dunning.read(table)
    table.done()
    return {key: value for key, value in read.items() if value is not None}, approval_limits, late


def _cluster(table: Table) -> ClusterEntry | None:
    name = table.text("name", required=True, longest=100)
    kind = table.choice("kind", ClusterKind.values)
    timezone = table.text("timezone", filled=True, longest=64, check=known_zone)
    within = table.table("connection")
    connection = connections.read(within) if "connection" in table.data else None
    beside = table.table("telemetry")
    telemetry = connections.read_telemetry(beside) if "telemetry" in table.data else None
    shares = credential_input.shares(table)
    declared = nodes.read(table)
    table.done()
    said: dict[str, Any] = {
        key: value for key, value in {"kind": kind, "timezone": timezone}.items() if value
    }
    if shares is not None:
        said["shares"] = shares
    return ClusterEntry(name, said, connection, telemetry, declared) if name else None


def _plan(table: Table) -> PlanEntry | None:
    errors = len(table.errors)
    name = table.text("name", required=True, longest=50, check=validate_slug)
    currency = table.text("currency", required=True, check=_currency)
    settles = table.choice("settles", Settles.values)
    charges = table.texts("charges")
    if charges is None and "charges" not in table.data:
        table.wrong("charges", f"is missing; list what is charged: {', '.join(Resource.values)}.")
    for unknown in set(charges or ()) - set(Resource.values):
        table.wrong("charges", f"has {quoted(unknown)} in it; allowed: {', '.join(Resource.values)}.")
    since = table.day("from")
    entries = table.tables("price", lambda place, _: f"{table.name}, price {place}")
    begins = [day for entry in entries if type(day := entry.data.get("from")) is date]
    first = since or min(begins, default=None)
    if first is None and len(table.errors) == errors:
        table.wrong("from", "is missing, and no price says from when it holds; write from = 2017-01-01.")
    prices = [price for entry in entries if (price := _price(entry, since))]
    said = read_terms(table, first)
    table.done()
    if len(table.errors) > errors or name is None or currency is None or charges is None or first is None:
        return None
    pays = Settles(settles) if settles else None
    return PlanEntry(table, name, currency, pays, charges, first, since is not None, prices, said)


def _price(table: Table, plan_since: date | None) -> PriceEntry | None:
    meter = table.choice("meter", list(Meter), required=True)
    terms, allowance = _scale(table), table.text("allowance", longest=100)
    tenant = table.text("tenant", longest=50, check=validate_slug)
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
    hours = read_hours(table)
    table.done()
    if meter is None or terms is None or since is None:
        return None
    return PriceEntry(table, meter, where, hours, terms, allowance or None, tenant or None, since, until)


def _scale(table: Table) -> dict[str, Any] | None:
    """How the price depends on the quantity, None where something of it is wrong."""
    model = table.choice("model", list(Scale)) or Scale.PER_UNIT
    needed = {"graduated": ["tiers"], "volume": ["tiers"], "package": ["package", "package_price"]}
    keys = needed.get(model, ["unit_price"])
    numbers = {
        key: table.decimal(key, required=key in keys) for key in ("unit_price", "package", "package_price")
    }
    tiers = [_tier(each) for each in table.tables("tiers", lambda place, _: f"{table.name}, tier {place}")]
    if "tiers" in keys and not tiers:
        table.wrong(
            "tiers", 'is missing; write tiers = [{ up_to = 100, unit_price = "3" }, { unit_price = "2" }].'
        )
    for key in ("unit_price", "tiers", "package", "package_price"):
        if key in table.data and key not in keys:
            table.wrong(key, f"does not go with model {model}, which needs {' and '.join(keys)}.")
    said = {key: f"{number:f}" for key, number in numbers.items() if number is not None}
    if model == Scale.PER_UNIT:
        return {"model": model, **said} if "unit_price" in said else None
    if model == Scale.PACKAGE:
        return (
            {"model": model, "size": said["package"], "price": said["package_price"]}
            if len(said) == 2
            else None
        )
    return None if not tiers or None in tiers else {"model": model, "tiers": tiers}


def _tier(table: Table) -> dict[str, Any] | None:
    up_to, unit_price = table.decimal("up_to"), table.decimal("unit_price", required=True)
    table.done()
    if unit_price is None:
        return None
    return {"up_to": None if up_to is None else f"{up_to:f}", "unit_price": f"{unit_price:f}"}


def _tenant(table: Table) -> TenantEntry | None:
    slug = table.text("slug", required=True, longest=50, check=validate_slug)
    said = {
        "name": table.text("name", filled=True, longest=200),
        "timezone": table.text("timezone", filled=True, longest=64, check=known_zone),
        "anchor_day": table.whole("anchor_day", lowest=1, highest=31),
        **parties.of_tenant(table),
        "tax_rate": taxes.percentage(table, "tax_rate"),
        **taxes.of_tenant(table),
        "payment_terms_days": table.whole("payment_terms_days", lowest=0, highest=365),
        "corrections": table.choice("corrections", ["", *Corrections.values]),
        "zero_invoices": table.choice("zero_invoices", ["", *ZeroInvoices.values]),
    }
    plan, plan_from = table.text("plan"), table.moment("plan_from")
    if plan_from is not None and plan is None:
        table.wrong("plan_from", "says from when a plan applies, but `plan` is missing.")
    phases = read_phases(table.tables("phase", lambda place, _: f"{table.name}, phase {place}"))
    if phases and plan is not None:
        table.wrong("plan", "is said beside phases, which say the plans; leave one of them out.")
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
    found = [
        wallet
        for entry in table.tables("wallet", lambda place, _: f"{table.name}, wallet {place}")
        if (wallet := wallets.read(entry))
    ]
    approval_limits, late, close = approvals.read(table), dunning.read(table), schedules.read(table)
    payer = payers.read(table)
    table.done()
    table.errors += _twice(f"{table.name}, wallet", (wallet.unit for wallet in found))
    table.errors += _twice(f"{table.name}, member", (email for email, _ in members))
    if not slug:
        return None
    fields = {key: value for key, value in said.items() if value is not None}
    return TenantEntry(
        table,
        slug,
        fields,
        plan or None,
        plan_from,
        phases,
        accounts,
        members,
        found,
        approval_limits,
        late,
        close,
        payer,
    )


def _account(table: Table) -> AccountEntry | None:
    cluster, account = table.text("cluster", required=True), table.text("account")
    if "account" not in table.data:
        table.wrong("account", "is missing.")
    project = table.text("project", longest=200)
    since, until = table.moment("since"), table.moment("until")
    table.done()
    if cluster is None or account is None:
        return None
    table.name = f"{table.name} ({excerpt(f'{cluster}/{account}')})"
    return AccountEntry(table, cluster, account, project or "", since, until)


def _member(table: Table) -> tuple[str, str] | None:
    email = table.text("email", required=True, longest=254, check=validate_email)
    role = table.choice("role", Role.values, required=True)
    table.done()
    return (email.lower(), role) if email and role else None


def _currency(code: str) -> None:
    if not is_currency(code) and code != TOKENS:
        raise ValidationError(
            f"it is no currency; write its code of ISO 4217, such as USD or EUR, or {TOKENS} for tokens."
        )
