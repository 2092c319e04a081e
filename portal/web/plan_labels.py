"""What people call the fields of a plan in its form, and the choices of those that have some."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from billing.models import QuotaAction, QuotaCredits, QuotaEvery, QuotaMeasure, Settles
from billing.rules.hours import HoursZone
from billing.rules.tiers import Scale
from portal.config_file.entries import Entry, Field
from portal.config_file.quotas import QuotaTermsEntry
from portal.web import budget_form

LABELS: Mapping[str, tuple[str, str]] = {
    "plan.name": (gettext_noop("Name"), gettext_noop("Lowercase, digits and hyphens")),
    "plan.currency": (gettext_noop("Currency"), gettext_noop("USD, EUR, … or TOK for tokens")),
    "plan.settles": (gettext_noop("Paid by"), ""),
    "plan.charges": (gettext_noop("Charged"), gettext_noop("All other usage is free")),
    "plan.from": (gettext_noop("Valid from"), gettext_noop("First day of this version")),
    "price.meter": (gettext_noop("What is counted"), ""),
    "price.model": (gettext_noop("How it is priced"), ""),
    "price.unit_price": (gettext_noop("Price per unit"), ""),
    "price.package": (gettext_noop("Units in a package"), ""),
    "price.package_price": (gettext_noop("Price of a package"), ""),
    "price.allowance": (
        gettext_noop("Included hours first from"),
        gettext_noop("Name of an allowance below"),
    ),
    "price.tenant": (gettext_noop("Only for tenant"), gettext_noop("Blank = all")),
    "price.from": (gettext_noop("From"), gettext_noop("Blank = with the version")),
    "price.until": (gettext_noop("Until"), gettext_noop("The first day without it; blank = no end")),
    "price.correction": (gettext_noop("Reason of a correction"), gettext_noop("Of a price in use only")),
    "tier.up_to": (gettext_noop("Up to"), gettext_noop("Units; blank = the rest")),
    "tier.unit_price": (gettext_noop("Price per unit"), ""),
    "window.days": (gettext_noop("Days"), gettext_noop("mon-fri, or sat, sun")),
    "window.from": (gettext_noop("From"), gettext_noop("22:00")),
    "window.to": (gettext_noop("To"), gettext_noop("06:00 is of the next day")),
    "window.zone": (gettext_noop("Clock"), ""),
    "allowance.name": (gettext_noop("Name"), gettext_noop("Prices refer to it")),
    "allowance.hours": (gettext_noop("Units included each period"), ""),
    "allowance.rollover": (gettext_noop("Unused units roll over"), ""),
    "fee.name": (gettext_noop("Name"), gettext_noop("As on invoices")),
    "fee.amount": (gettext_noop("Amount each period"), ""),
    "fee.in_advance": (gettext_noop("Billed in advance"), ""),
    "commitment.amount": (gettext_noop("Least amount each period"), ""),
    "commitment.overage_factor": (
        gettext_noop("Overage factor"),
        gettext_noop("1.5 = what lies above costs half more"),
    ),
    "discount.name": (gettext_noop("Name"), gettext_noop("As on invoices")),
    "discount.percent": (gettext_noop("Per cent off"), ""),
    "discount.amount": (gettext_noop("Or amount off"), ""),
    "quota.amount": (gettext_noop("Amount"), gettext_noop("In the plan’s currency, GPU-hours or credits")),
    "quota.unit": (gettext_noop("Unit"), gettext_noop("Of credits: TOK or a currency; blank = TOK")),
    "quota.with_paid": (gettext_noop("Count what the tenant pays for others"), ""),
}
"""Those of quotas that are not here are called as on the page *Budgets*."""
TERM_LABELS = {
    "tenant": (gettext_noop("Only for tenant"), gettext_noop("Blank = all")),
    "from": (gettext_noop("From"), gettext_noop("Blank = with the version")),
    "until": (gettext_noop("Until"), gettext_noop("The first day without it")),
}
"""Of fees, allowances, commitments and discounts alike."""
SELECTOR_LABELS = {
    "cluster": gettext_noop("Clusters"),
    "queue": gettext_noop("Queues"),
    "qos": gettext_noop("QOS"),
    "priority_class": gettext_noop("Priority classes"),
    "gpu_model": gettext_noop("GPU models"),
    "mig_profile": gettext_noop("MIG profiles"),
    "state": gettext_noop("Job states"),
    "use": gettext_noop("Use of the GPU"),
    "dimension": gettext_noop("Dimensions of a meter"),
}
SELECTOR_HINTS = {
    "use": gettext_noop("busy, idle, unknown"),
    "dimension": gettext_noop("model=large"),
    "gpu_model": gettext_noop("a100, h100; blank = all"),
}
TITLES = {
    "price": (gettext_noop("Prices"), gettext_noop("Add price")),
    "tiers": (gettext_noop("Tiers"), gettext_noop("Add tier")),
    "hours": (gettext_noop("Hours of the week"), gettext_noop("Add hours")),
    "allowance": (gettext_noop("Included hours"), gettext_noop("Add included hours")),
    "fee": (gettext_noop("Fees"), gettext_noop("Add fee")),
    "commitment": (gettext_noop("Commitment"), gettext_noop("Add commitment")),
    "discount": (gettext_noop("Discounts"), gettext_noop("Add discount")),
    "quota": (gettext_noop("Budgets of each subscriber"), gettext_noop("Add budget")),
}
NOUNS = {
    "price": gettext_noop("Price"),
    "tiers": gettext_noop("Tier"),
    "hours": gettext_noop("Hours"),
    "allowance": gettext_noop("Included hours"),
    "fee": gettext_noop("Fee"),
    "commitment": gettext_noop("Commitment"),
    "discount": gettext_noop("Discount"),
    "quota": gettext_noop("Budget"),
}
CHOICES: Mapping[type[Enum], Mapping[str, str]] = {
    Settles: {
        "invoice": gettext_noop("Invoice"),
        "wallet": gettext_noop("Wallet, as it is used"),
        "wallet-first": gettext_noop("Wallet first, then invoice"),
    },
    Scale: {
        "per_unit": gettext_noop("The same for every unit"),
        "graduated": gettext_noop("Graduated: each tier at its own price"),
        "volume": gettext_noop("Volume: all of it at the price of its tier"),
        "package": gettext_noop("Packages"),
    },
    HoursZone: {"tenant": gettext_noop("The tenant’s"), "cluster": gettext_noop("The cluster’s")},
}
RESOURCES = {
    "gpu": gettext_noop("GPU time"),
    "cpu": gettext_noop("CPU time"),
    "memory": gettext_noop("Memory time"),
    "gpu-memory": gettext_noop("GPU memory time"),
    "billing": gettext_noop("Slurm billing"),
}
OF_QUOTAS: Mapping[type[Enum], Callable[[], list[tuple[str, str]]]] = {
    QuotaMeasure: budget_form.list_measures,
    QuotaEvery: budget_form.list_periods,
    QuotaCredits: budget_form.list_credits,
    QuotaAction: budget_form.list_actions,
}


def label_of(kind: type[Entry], field: Field) -> tuple[str, str]:
    """What people call the field, and what helps to fill it in; both translated."""
    named = LABELS.get(f"{kind.noun}.{field.key}")
    if named is None and issubclass(kind, QuotaTermsEntry):
        return budget_form.label_of(field.key)
    label, hint = named or TERM_LABELS[field.key]
    return _(label), _(hint) if hint else ""


def choices_of(kind: type[Enum]) -> list[tuple[str, str]]:
    """Values with what people call them, the usual one first."""
    if kind in OF_QUOTAS:
        return OF_QUOTAS[kind]()
    return [(value, _(text)) for value, text in CHOICES[kind].items()]
