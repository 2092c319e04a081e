"""The tenant, cluster or invoice that a command names. Each raises BadInputError, with those that there are."""

from __future__ import annotations

from typing import TypeVar

from django.db.models import Model

from billing.models import Invoice, InvoiceState
from clusters.models import Cluster
from portal.core.tenants.models import Tenant
from portal.excerpt import quoted
from portal.ops.cli import BadInputError

LISTED = 20  # names in a sentence
Named = TypeVar("Named", bound=Model)


def the_tenant(slug: str) -> Tenant:
    return _named(Tenant, "slug", slug)


def the_cluster(name: str) -> Cluster:
    return _named(Cluster, "name", name)


def the_invoice(number: str) -> Invoice:
    invoice = Invoice.objects.select_related("tenant", "period").filter(number=number).first()
    if invoice is None:
        raise BadInputError(f"There is no invoice {quoted(number)}; `show_invoices` lists them.")
    return invoice


def invoice_of(tenant: Tenant, number: str) -> Invoice:
    """An issued one of that tenant."""
    invoice = Invoice.objects.filter(tenant=tenant, number=number, state=InvoiceState.ISSUED).first()
    if invoice is None:
        raise BadInputError(
            f"{tenant.slug} has no issued invoice {quoted(number)}; `show_invoices --tenant {tenant.slug}` lists them."
        )
    return invoice


def _named(model: type[Named], column: str, name: str) -> Named:
    row = model._default_manager.filter(**{column: name}).first()
    if row is None:
        names = model._default_manager.order_by(column).values_list(column, flat=True)[:LISTED]
        raise BadInputError(
            f"There is no {model._meta.verbose_name} {quoted(name)}; known: {', '.join(names) or 'none yet'}."
        )
    return row
