"""What the commands share that pause dunning and resume it: whose, and of which invoice."""

from __future__ import annotations

from django.core.management.base import CommandParser

from billing.models import Invoice, InvoiceState
from portal.core.tenants.models import Tenant
from portal.excerpt import quoted
from portal.ops.cli import BadInputError


def targets(parser: CommandParser) -> None:
    parser.add_argument("tenant", metavar="TENANT")
    parser.add_argument("--invoice", metavar="NUMBER", help="this one; all of the tenant's unless said")


def found(slug: str, number: str | None) -> tuple[Tenant, Invoice | None]:
    """Raises BadInputError for a tenant that is not, or an invoice that is not its."""
    tenant = Tenant.objects.filter(slug=slug).first()
    if tenant is None:
        raise BadInputError(f"There is no tenant {quoted(slug)}.")
    if not number:
        return tenant, None
    invoice = Invoice.objects.filter(tenant=tenant, number=number, state=InvoiceState.ISSUED).first()
    if invoice is None:
        raise BadInputError(
            f"{slug} has no issued invoice {quoted(number)}; `show_invoices --tenant {slug}` lists them."
        )
    return tenant, invoice
