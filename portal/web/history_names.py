"""Names for the numbers that entries of the history hold: people, accounts, plans, quotas, invoices, rows, …"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import connection
from django.utils.translation import gettext as _

from billing.models import FailureRule, Invoice, Plan, Quota, Wallet, WasteRule
from clusters.models import Account, Cluster
from portal.core.audit.models import Exact
from portal.core.tenants.models import Project, Tenant
from portal.sql_files import Statements

sql = Statements(__file__, "history_names.sql")
PEOPLE = frozenset({"user_id", "maker_id"})
TITLES = ("email", "name", "slug", "number", "label", "viewer")  # of a row, the first that it has


@dataclass(frozen=True, slots=True)
class Names:
    """By number; `rows` by table and key."""

    people: Mapping[int, str]
    accounts: Mapping[int, str]
    projects: Mapping[int, str]
    plans: Mapping[int, str]
    tenants: Mapping[int, str]  # slugs
    quotas: Mapping[int, str]
    invoices: Mapping[int, str]
    clusters: Mapping[int, str]
    rules: Mapping[int, str]  # about idle jobs
    failure_rules: Mapping[int, str]
    wallets: Mapping[int, tuple[str, str]]  # name and unit
    rows: Mapping[tuple[str, str], Mapping[str, Any]]  # what is known of each

    def unit(self, entry: Mapping[str, Any]) -> str:
        """Of the money in the row, where it names its unit or its wallet; else ""."""
        facts = self._facts(entry)
        return str(facts.get("unit") or self.wallets.get(facts.get("wallet_id") or 0, ("", ""))[1])

    def _facts(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        """What is known of the row at the entry's time."""
        began = self.rows.get((entry["table"], entry["key"]), {})
        return {**began, **(entry["before"] or {}), **(entry["after"] or {})}

    def row(self, entry: Mapping[str, Any]) -> str:
        """What the row is called, at the entry's time as far as it is known; "" for one without a name."""
        facts = self._facts(entry)
        for column in TITLES:
            if facts.get(column):
                return str(facts[column])
        for column in ("user_id", "account_id", "plan_id", "payer_id"):
            if facts.get(column):
                return self.value(column, facts[column])
        return ""

    def value(self, column: str, value: object) -> str:
        """A value as people read it."""
        by_column: Mapping[str, Mapping[int, str]] = {
            "account_id": self.accounts,
            "project_id": self.projects,
            "plan_id": self.plans,
            "payer_id": self.tenants,
            "quota_id": self.quotas,
            "borrows_from_id": self.quotas,
            "invoice_id": self.invoices,
            "cluster_id": self.clusters,
            "rule_id": self.rules,
            "failure_rule_id": self.failure_rules,
            "wallet_id": {pk: name for pk, (name, _unit) in self.wallets.items()},
        }
        table = self.people if column in PEOPLE else by_column.get(column)
        if table is not None and isinstance(value, int):
            return table.get(value, f"#{value}")
        return plain(value)


def plain(value: object) -> str:
    """`yes`, `a, b`, `2026-03-01 10:00`; "" for nothing."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return _("yes") if value else _("no")
    if isinstance(value, list):
        return ", ".join(plain(each) for each in value)
    text = str(value)
    if match := re.fullmatch(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d)(:\d\d)?(\.\d+)?(\+00:00|Z)", text):
        return f"{match[1]} {match[2]} UTC"
    return text


def names_of(entries: Sequence[Mapping[str, Any]]) -> Names:
    """In the scope of the reader: names of other tenants' rows are not there. Eleven queries at most."""
    rows = _rows(entries)
    facts = [
        *rows.values(),
        *(part for entry in entries for part in (entry["before"], entry["after"]) if part),
    ]

    def numbers(*columns: str) -> list[int]:
        return [value for part in facts for column in columns if isinstance(value := part.get(column), int)]

    accounts = Account.objects.filter(pk__in=numbers("account_id")).select_related("cluster")
    projects = Project.objects.filter(pk__in=numbers("project_id"))
    plans = Plan.objects.filter(pk__in=numbers("plan_id"))
    owners = [entry["tenant_id"] for entry in entries if entry["tenant_id"]] + numbers("payer_id")
    return Names(
        people=_people(numbers(*PEOPLE)),
        accounts={
            pk: f"{cluster}/{name}"
            for pk, cluster, name in accounts.values_list("pk", "cluster__name", "name")
        },
        projects=dict(projects.values_list("pk", "name")),
        plans=dict(plans.values_list("pk", "name")),
        quotas=dict(
            Quota.objects.filter(pk__in=numbers("quota_id", "borrows_from_id")).values_list("pk", "name")
        ),
        tenants=dict(Tenant.objects.filter(pk__in=owners).values_list("pk", "slug")),
        invoices={row.pk: row.number or "" for row in Invoice.objects.filter(pk__in=numbers("invoice_id"))},
        clusters=dict(Cluster.objects.filter(pk__in=numbers("cluster_id")).values_list("pk", "name")),
        rules=dict(WasteRule.objects.filter(pk__in=numbers("rule_id")).values_list("pk", "name")),
        failure_rules=dict(
            FailureRule.objects.filter(pk__in=numbers("failure_rule_id")).values_list("pk", "name")
        ),
        wallets={row.pk: (f"{row}", row.unit) for row in _wallets(numbers("wallet_id"))},
        rows=rows,
    )


def _wallets(numbers: Sequence[int]) -> Iterable[Wallet]:
    return Wallet.objects.filter(pk__in=numbers).select_related("tenant", "project")


def _rows(entries: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    """What each changed row began as, of those that only changed."""
    keys = {(entry["table"], entry["key"]) for entry in entries if entry["operation"] == "update"}
    with connection.cursor() as cursor:
        cursor.execute(
            sql.BEGINNINGS,
            {"tables": [table for table, _key in keys], "keys": [key for _table, key in keys]},
        )
        return {(table, key): json.loads(after, cls=Exact) for table, key, after in cursor.fetchall()}


def _people(numbers: Sequence[int]) -> dict[int, str]:
    """Addresses: of people in the tenant's history, also of those who have left."""
    with connection.cursor() as cursor:
        cursor.execute(sql.PEOPLE, {"people": [*numbers]})
        return dict(cursor.fetchall())
