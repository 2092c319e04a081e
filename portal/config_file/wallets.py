"""The wallets of a tenant in a configuration file: whose they are, and what they are given."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from django.core.exceptions import ValidationError

from billing.models import CreditsGo, GrantEvery, GrantRule, WalletScheme, WalletScope
from billing.models.wallets import PAYS_FIRST
from billing.rules.money import TOKENS, Money, is_currency
from billing.wallets import wallet_terms
from billing.wallets.entries import WalletError
from billing.wallets.wallet_terms import Rule
from portal.config_file.toml_table import Moment, Table
from portal.core.tenants.models import Tenant
from portal.excerpt import quoted
from portal.ops.cli import midnight

LARGEST = 10**9  # of one amount, in whole units


@dataclass(frozen=True, slots=True)
class GrantEntry:
    name: str
    amount: Decimal
    every: str
    begins: Moment | None
    ends: Moment | None
    cap: Decimal | None
    priority: int
    lasts_days: int | None


@dataclass(frozen=True, slots=True)
class WalletEntry:
    table: Table
    scope: str
    unit: str
    overdraft: Decimal
    since: Moment
    credits_go: str
    grants: list[GrantEntry]


def read(table: Table) -> WalletEntry | None:
    """The entry; mistakes go to the table's errors."""
    scope = table.choice("for", WalletScope.values, required=True)
    unit = table.text("unit", required=True, check=_unit)
    overdraft = _amount(table, "overdraft") or Decimal(0)
    credits_go = table.choice("credits", CreditsGo.values) or CreditsGo.WALLET.value
    since = table.moment("from")
    if since is None and "from" not in table.data:
        table.wrong("from", "is missing; write from = 2026-01-01.")
    grants = [
        grant
        for entry in table.tables("grants", lambda place, _: f"{table.name}, grant {place}")
        if (grant := _grant(entry))
    ]
    table.done()
    if scope is None or unit is None or since is None:
        return None
    return WalletEntry(table, scope, unit, overdraft, since, credits_go, grants)


def write(*, tenant: Tenant, entry: WalletEntry) -> None:
    """Have the wallets be as the entry says; applied again, nothing changes. Raises WalletError."""
    since = _instant(entry.since, tenant)
    scheme = wallet_terms.set_scheme(
        tenant=tenant,
        unit=entry.unit,
        scope=WalletScope(entry.scope),
        overdraft=_minor(entry.overdraft, entry.unit),
        since=since,
        credits_go=CreditsGo(entry.credits_go),
    )
    for grant in entry.grants:
        rule = Rule(
            name=grant.name,
            amount=_minor(grant.amount, entry.unit),
            every=GrantEvery(grant.every),
            begins_at=since if grant.begins is None else _instant(grant.begins, tenant),
            ends_at=None if grant.ends is None else _instant(grant.ends, tenant),
            cap=None if grant.cap is None else _minor(grant.cap, entry.unit),
            priority=grant.priority,
            lasts_days=grant.lasts_days,
        )
        wallet_terms.set_rule(scheme=scheme, rule=rule)


def schemes_told() -> Iterable[tuple[int, str, dict[str, str]]]:
    """Of each scheme its key, its name for people, and what it says."""
    for row in WalletScheme.objects.select_related("tenant").order_by("pk"):
        fields = {
            "for": row.scope,
            "overdraft": Money.from_minor(row.overdraft, row.unit).text,
            "from": f"{row.since:%Y-%m-%d %H:%M:%S} UTC",
            "credits": "" if row.credits == CreditsGo.WALLET else row.credits,
        }
        yield row.pk, f"wallets of {row.tenant.slug} in {row.unit}", fields


def rules_told() -> Iterable[tuple[int, str, dict[str, str]]]:
    """As `schemes_told`, of their grants."""
    for row in GrantRule.objects.select_related("scheme__tenant").order_by("pk"):
        unit = row.scheme.unit
        fields = {
            "amount": Money.from_minor(row.amount, unit).text,
            "every": row.every,
            "from": f"{row.begins_at:%Y-%m-%d %H:%M:%S} UTC",
            "until": f"{row.ends_at:%Y-%m-%d %H:%M:%S} UTC" if row.ends_at else "",
            "cap": "" if row.cap is None else Money.from_minor(row.cap, unit).text,
            "priority": str(row.priority),
            "lasts_days": str(row.lasts_days or ""),
        }
        yield row.pk, f"grant {quoted(row.name)} of {row.scheme.tenant.slug} in {unit}", fields


def _grant(table: Table) -> GrantEntry | None:
    every = table.choice("every", GrantEvery.values, required=True)
    name = table.text("name", longest=100) or (every or "")
    amount = _amount(table, "amount", required=True)
    begins, ends = table.moment("from"), table.moment("until")
    cap = _amount(table, "cap")
    priority = table.whole("priority", lowest=0, highest=1000)
    lasts = table.whole("lasts_days", lowest=1, highest=36_500)
    table.done()
    if every is None or amount is None:
        return None
    if not amount:
        table.wrong("amount", "is nothing; a grant gives more than that.")
        return None
    return GrantEntry(
        name, amount, every, begins, ends, cap, PAYS_FIRST if priority is None else priority, lasts
    )


def _amount(table: Table, key: str, *, required: bool = False) -> Decimal | None:
    amount = table.decimal(key, required=required)
    if amount is not None and not 0 <= amount <= LARGEST:
        table.wrong(key, f"is {amount}; it is from 0 to {LARGEST:,}.")
        return None
    return amount


def _minor(amount: Decimal, unit: str) -> int:
    exact = Money.of(amount, unit)
    if exact != exact.rounded():
        raise WalletError(f"{amount} is finer than {unit} is counted.")
    return exact.minor


def _instant(moment: Moment, tenant: Tenant) -> datetime:
    return moment if isinstance(moment, datetime) else midnight(moment, tenant.zone)


def _unit(code: str) -> None:
    if not is_currency(code) and code != TOKENS:
        raise ValidationError(f"it is no unit of a wallet; write a currency of ISO 4217, or {TOKENS}.")
