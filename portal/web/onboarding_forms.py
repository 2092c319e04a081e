"""What the steps of onboarding write: by the same entries as a file for `apply`, so the same is refused alike."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from typing import Any

from django.db import transaction
from django.http import QueryDict
from django.utils.text import slugify
from django.utils.translation import gettext as _

from billing.catalog import subscriptions
from billing.models import Plan
from billing.rules.period import midnight
from clusters.models import Account, Cluster, ClusterKind
from portal.config_file.clusters import ClusterEntry
from portal.config_file.drafts import publish_entry
from portal.config_file.plan_entries import PlanEntry
from portal.config_file.sellers import SellerEntry
from portal.config_file.tenants import TenantEntry
from portal.config_file.toml_table import ConfigError
from portal.core.outbox import outbox
from portal.core.tenants import ownership
from portal.core.tenants.models import Ownership, Tenant
from portal.web.entry_form import entry_of

SELLER = ("name", "address", "postcode", "city", "country", "vat_id", "email", "invoice_prefix")
NEW = "+"
"""The choice of a new tenant beside those that there are."""
AT_ONCE = 50  # accounts that one form gives to tenants
LONGEST = 1000  # characters of a field


@transaction.atomic
def save_seller(form: QueryDict) -> str:
    """Raises ConfigError."""
    values = {name: text for name in SELLER if (text := _text(form, name))}
    entry_of(SellerEntry, values, "seller").write()
    return _("The seller is saved.")


@transaction.atomic
def save_cluster(form: QueryDict) -> Cluster:
    """Raises ConfigError and ClusterError."""
    name, kind = _text(form, "name"), _text(form, "kind")
    if Cluster.objects.filter(name=name).exists():
        raise ConfigError(_("There is a cluster of this name already."))
    values = {"name": name, "kind": kind, "timezone": _text(form, "timezone")}
    entry_of(ClusterEntry, {key: text for key, text in values.items() if text}, "cluster").write()
    return Cluster.objects.get(name=name)


@transaction.atomic
def assign_accounts(form: QueryDict, *, country: str) -> int:
    """Give accounts to tenants, from the beginning on, as the form chose; how many. What is owned meanwhile stays.

    A new tenant's place is the seller's country and the cluster's zone: its page in the administration has all else.
    Raises ConfigError and OwnershipConflictError.
    """
    made: dict[str, Tenant] = {}
    accounts: list[int] = []
    for place in range(AT_ONCE):
        chosen, number = _text(form, f"tenant-{place}"), _text(form, f"account-{place}")
        if not chosen or not (number.isascii() and number.isdecimal() and len(number) < 19):
            continue
        account = Account.objects.select_related("cluster").filter(pk=int(number)).first()
        if account is None or Ownership.objects.filter(account=account).exists():
            continue
        name = _text(form, f"name-{place}")
        tenant = _new_tenant(name, account, country, made) if chosen == NEW else _tenant(chosen)
        ownership.assign(account=account, tenant=tenant)
        accounts.append(account.pk)
    if accounts:
        outbox.add("billing.tasks.rate_accounts", account_ids=accounts)
    return len(accounts)


@transaction.atomic
def publish_plan(form: QueryDict, models: Iterable[str]) -> tuple[Plan, int]:
    """A new plan with a price for each model that was given one; every tenant without a plan comes to it on its first
    day. One that is there already is not changed here, where nobody sees whose prices would change.

    Raises ConfigError and PlanError.
    """
    prices = [
        {"meter": "gpu-hour", "unit_price": amount} | ({"where": {"gpu_model": [model]}} if model else {})
        for place, model in enumerate(models)
        if (amount := _text(form, f"price-{place}"))
    ]
    if not prices:
        raise ConfigError(_("Enter a price for at least one GPU model."))
    values: dict[str, Any] = {
        "name": slugify(_text(form, "name"))[:50],
        "currency": _text(form, "currency").upper(),
        "charges": ["gpu"],
        "from": _day(_text(form, "since")),
        "price": prices,
    }
    entry = entry_of(PlanEntry, values, "plan")
    if Plan.objects.filter(name=entry.name).exists():
        raise ConfigError(
            _("There is a plan {plan} already: choose another name, or change that one on its page.").format(
                plan=entry.name
            )
        )
    version = publish_entry(entry).version
    tenants = Tenant.objects.filter(subscriptions=None, archive=None)
    rows = list(tenants)
    for tenant in rows:
        since = midnight(version.effective_from, zone=tenant.zone)
        subscriptions.subscribe(tenant=tenant, plan=version.plan, since=since)
    if rows:
        outbox.add("billing.tasks.rate_tenants", tenant_ids=[tenant.pk for tenant in rows])
    return version.plan, len(rows)


def tenant_name(account: str) -> str:
    """What a new tenant is called that an account is named after: `vision-lab` becomes `Vision Lab`."""
    return account.replace("-", " ").replace("_", " ").title()


def kinds() -> tuple[tuple[str, str], ...]:
    """Where usage can come from, as the form offers it."""
    return (
        (ClusterKind.SLURM.value, _("Slurm, by slurmrestd")),
        (ClusterKind.PROMETHEUS.value, _("Kubernetes, by Prometheus")),
        (ClusterKind.GPUSTACK.value, _("GPUStack, by its usage API")),
        (ClusterKind.IMPORT.value, _("Accounting files (sacct, PBS, LSF, Grid Engine)")),
    )


def _new_tenant(name: str, account: Account, country: str, made: dict[str, Tenant]) -> Tenant:
    """One for all accounts of the form that name it alike."""
    slug = slugify(name)[:50]
    if not slug:
        raise ConfigError(_("Enter the name of the new tenant of {account}.").format(account=account))
    if slug not in made:
        if Tenant.objects.filter(slug=slug).exists():
            raise ConfigError(
                _("There is a tenant {slug} already: choose it, or another name.").format(slug=slug)
            )
        values = {"slug": slug, "name": name, "timezone": account.cluster.timezone, "country": country}
        entry = entry_of(TenantEntry, {key: text for key, text in values.items() if text}, f'tenant "{slug}"')
        made[slug] = entry.write()
    return made[slug]


def _tenant(slug: str) -> Tenant:
    tenant = Tenant.objects.filter(slug=slug).first()
    if tenant is None:
        raise ConfigError(_("Choose a tenant of the list."))
    return tenant


def _text(form: QueryDict, name: str) -> str:
    return form.get(name, "").replace("\0", "").replace("\r\n", "\n").strip()[:LONGEST]


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise ConfigError(_("Enter the first day of the plan like 2026-03-01.")) from error
