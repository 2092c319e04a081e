"""The wallets of a tenant in a configuration file: whose they are, and what is granted to them."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Annotated, Any, ClassVar

from billing.models import CreditsGo, DebtTerms, GrantEvery, QuotaAction, WalletScheme, WalletScope
from billing.models.wallets import PAYS_FIRST
from billing.rules.money import TOKENS, Money, is_currency
from billing.rules.quotas import LONGEST_GRACE, SHORTEST_GRACE
from billing.wallets import wallet_terms
from billing.wallets.entries import WalletError
from billing.wallets.wallet_terms import OF_DEBTS, Debt
from billing.wallets.wallet_terms import Rule as GrantTerms
from portal.config_file import toml_values
from portal.config_file.entries import Entry, Rule, key
from portal.config_file.toml_table import Table
from portal.config_file.toml_values import Moment, instant
from portal.core.tenants.models import Tenant

LARGEST = 10**9  # of one amount, in whole units


def _amount(amount: Decimal) -> None:
    if not 0 <= amount <= LARGEST:
        raise ValueError(f"it is from 0 to {LARGEST:,}.")


def _unit(code: str) -> None:
    if not is_currency(code) and code != TOKENS:
        raise ValueError(f"it is no unit of a wallet; write a currency of ISO 4217, or {TOKENS}.")


def _action(value: object) -> QuotaAction:
    names = [one.value for one in OF_DEBTS]
    return QuotaAction(toml_values.choice(value, names, filled=True))


Amount = Annotated[Decimal, Rule(check=_amount)]


class GrantEntry(Entry, frozen=True, kw_only=True):
    noun: ClassVar[str] = "grant"
    every: GrantEvery
    name: Annotated[str, Rule(longest=100)] = ""  # that of `every`
    amount: Amount
    begins: Moment | None = key(name="from", default=None)
    ends: Moment | None = key(name="until", default=None)
    cap: Amount | None = None
    priority: Annotated[int, Rule(lowest=0, highest=1000)] = PAYS_FIRST
    lasts_days: Annotated[int, Rule(lowest=1, highest=36_500)] | None = None

    @classmethod
    def complete(cls, table: Table, values: dict[str, Any]) -> None:
        if values.get("amount") == 0:
            table.wrong("amount", "is nothing; a grant gives more than that.")

    def write(self, scheme: WalletScheme, tenant: Tenant) -> None:
        terms = GrantTerms(
            name=self.name or self.every.value,
            amount=_minor(self.amount, scheme.unit),
            every=self.every,
            begins_at=instant(self.begins, tenant.zone) or scheme.since,
            ends_at=instant(self.ends, tenant.zone),
            cap=None if self.cap is None else _minor(self.cap, scheme.unit),
            priority=self.priority,
            lasts_days=self.lasts_days,
        )
        wallet_terms.set_rule(scheme=scheme, rule=terms)


class DebtEntry(Entry, frozen=True, kw_only=True):
    noun: ClassVar[str] = "debt"
    action: Annotated[QuotaAction, Rule(value=_action)]
    demand_above: Annotated[int, Rule(lowest=0, highest=99)] | None = None
    grace_minutes: Annotated[int, Rule(lowest=SHORTEST_GRACE, highest=LONGEST_GRACE)] | None = None
    free_at: Amount = Decimal(0)
    watch: bool = True

    def terms(self, unit: str) -> Debt:
        return Debt(
            action=self.action,
            demand_above=self.demand_above,
            grace_minutes=self.grace_minutes,
            free_at=_minor(self.free_at, unit),
            watch=self.watch,
        )


class WalletEntry(Entry, frozen=True, kw_only=True):
    noun: ClassVar[str] = "wallet"
    scope: WalletScope = key(name="for")
    unit: Annotated[str, Rule(check=_unit)]
    overdraft: Amount = Decimal(0)
    credits_go: CreditsGo = key(name="credits", default=CreditsGo.WALLET)
    since: Annotated[Moment, Rule(missing="; write from = 2026-01-01.")] = key(name="from")
    grants: list[GrantEntry] = key(default_factory=list)
    debt: DebtEntry | None = None

    @property
    def identity(self) -> str:
        return self.unit

    def write(self, tenant: Tenant) -> None:
        """Have the wallets be as the entry says; applied again, nothing changes. Raises WalletError."""
        scheme = wallet_terms.set_scheme(
            tenant=tenant,
            unit=self.unit,
            scope=self.scope,
            overdraft=_minor(self.overdraft, self.unit),
            since=instant(self.since, tenant.zone),
            credits_go=self.credits_go,
        )
        for grant in self.grants:
            grant.write(scheme, tenant)
        wallet_terms.set_debt(scheme=scheme, debt=self.debt.terms(self.unit) if self.debt else None)


def debt_described(row: DebtTerms) -> Mapping[str, Any]:
    """What a list of changes says of it, by its keys in a file."""
    return {
        "action": row.action,
        "demand_above": "" if row.demand_above is None else f"{row.demand_above} %",
        "grace_minutes": row.grace_minutes,
        "free_at": Money.from_minor(row.free_at, row.scheme.unit).text,
        "watch": "yes" if row.watch else "no",
    }


def _minor(amount: Decimal, unit: str) -> int:
    exact = Money.of(amount, unit)
    if exact != exact.rounded():
        raise WalletError(f"{amount} is finer than {unit} is counted.")
    return exact.minor
