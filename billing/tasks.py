"""What workers do for billing. Each takes ids, may run twice, at once, and die anywhere."""

from __future__ import annotations

from hashlib import sha256

from celery import shared_task

from billing import rating
from billing.documents import build, pdf
from billing.models import Invoice, InvoiceDocument
from portal.tenants.models import Tenant


@shared_task
def render_document(*, invoice_id: int, **_: object) -> None:
    """Keep the invoice's PDF as it is sent; one that is kept already stays."""
    if InvoiceDocument.objects.filter(invoice_id=invoice_id).exists():
        return
    invoice = Invoice.objects.get(pk=invoice_id)
    content = pdf.render(build.document_of(invoice))
    InvoiceDocument.objects.get_or_create(
        invoice=invoice,
        defaults={"tenant_id": invoice.tenant_id, "pdf": content, "sha256": sha256(content).hexdigest()},
    )


@shared_task
def rate_accounts(*, account_ids: list[int], **_: object) -> None:
    """Rate all usage of the accounts again, after they changed hands."""
    rating.rate_accounts(account_ids)


@shared_task
def rate_tenants(*, tenant_ids: list[int], **_: object) -> None:
    """Rate all usage of the tenants again, after a change of what they pay."""
    rating.rate_tenants(Tenant.objects.filter(pk__in=tenant_ids))
