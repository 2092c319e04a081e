"""Names of what proofs find: statements tell of rows by their keys, operators look for jobs, accounts and tenants."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from billing.catalog import billing_periods
from billing.models import BillingPeriod, Invoice, Price, Transfer, Wallet, WalletGrant
from clusters import usage
from portal.core.tenants.models import Project, Tenant

MARK = re.compile(r"\{(\w+):(\d+)\}")
"""`{tenant:12}` in a text of a proof: the tenant whose key is 12."""


def named(texts: Sequence[str]) -> list[str]:
    """The texts with names in the place of marks; what is gone keeps its key. A query for each kind there is."""
    keys_by_kind: dict[str, set[int]] = defaultdict(set)
    for kind, key in (mark for text in texts for mark in MARK.findall(text)):
        keys_by_kind[kind].add(int(key))
    names = {kind: _NAMES[kind](keys) for kind, keys in keys_by_kind.items()}

    def name(mark: re.Match[str]) -> str:
        kind, key = mark[1], int(mark[2])
        return names[kind].get(key) or f"{kind} {key}, which is gone"

    return [MARK.sub(name, text) for text in texts]


def mark(kind: str, key: int) -> str:
    """What `named` puts a name for."""
    return f"{{{kind}:{key}}}"


def _tenants(keys: Collection[int]) -> Mapping[int, str]:
    return {pk: f"tenant {slug}" for pk, slug in Tenant.objects.filter(pk__in=keys).values_list("pk", "slug")}


def _projects(keys: Collection[int]) -> Mapping[int, str]:
    rows = Project.objects.filter(pk__in=keys).values_list("pk", "name", "tenant__slug")
    return {pk: f"project {name or '(none)'} of {slug}" for pk, name, slug in rows}


def _periods(keys: Collection[int]) -> Mapping[int, str]:
    rows = BillingPeriod.objects.filter(pk__in=keys).select_related("tenant")
    return {row.pk: f"{billing_periods.name(row)} of {row.tenant.slug}" for row in rows}


def _prices(keys: Collection[int]) -> Mapping[int, str]:
    rows = Price.objects.filter(pk__in=keys).select_related("version__plan")
    return {row.pk: f"price {row} of plan {row.version.plan.name}" for row in rows}


def _invoices(keys: Collection[int]) -> Mapping[int, str]:
    rows = Invoice.objects.filter(pk__in=keys).values_list("pk", "number", "tenant__slug")
    return {pk: f"invoice {number or '(not issued)'} of {slug}" for pk, number, slug in rows}


def _wallets(keys: Collection[int]) -> Mapping[int, str]:
    rows = Wallet.objects.filter(pk__in=keys).select_related("tenant", "project")
    return {row.pk: f"{row.unit} wallet {row} of {row.tenant.slug}" for row in rows}


def _grants(keys: Collection[int]) -> Mapping[int, str]:
    rows = WalletGrant.objects.filter(pk__in=keys).select_related("wallet__tenant")
    return {row.pk: f"grant {row} of {row.wallet.tenant.slug}" for row in rows}


def _transfers(keys: Collection[int]) -> Mapping[int, str]:
    return {row.pk: f"the transfer of {row}" for row in Transfer.objects.filter(pk__in=keys)}


def _jobs(keys: Iterable[int]) -> Mapping[int, str]:
    return {pk: f"job {job} of {account}" for pk, (job, account) in usage.job_names(keys).items()}


_NAMES: Mapping[str, Callable[[Collection[int]], Mapping[int, str]]] = {
    "tenant": _tenants,
    "project": _projects,
    "period": _periods,
    "price": _prices,
    "invoice": _invoices,
    "wallet": _wallets,
    "grant": _grants,
    "transfer": _transfers,
    "job": _jobs,
}
