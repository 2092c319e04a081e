"""What workers do for billing. Each takes ids, may run twice, at once, and die anywhere."""

from __future__ import annotations

from datetime import UTC, datetime
from hashlib import sha256

import structlog
from celery import shared_task

from billing import rating
from billing.documents import build, pdf
from billing.models import Invoice, InvoiceDocument
from clusters import due, passes
from clusters.models import Cluster
from portal.tenants.models import Tenant

log = structlog.get_logger("billing.tasks")


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


@shared_task
def pull_usage(*, cluster_id: int, **_: object) -> None:
    """Pull the cluster now; nothing where somebody does already. How it went is kept with its connection."""
    from billing import pulling  # the connectors load 5 MiB that whoever only sends this does without

    cluster = Cluster.objects.get(pk=cluster_id)
    pulled = pulling.pull(cluster, moment=datetime.now(UTC).replace(microsecond=0))
    log.info(
        "pulled",
        cluster=cluster.name,
        outcome=pulled.outcome.value,
        passes=pulled.passes,
        rows=pulled.stored.read,
        new=pulled.stored.new,
        revised=pulled.stored.revised,
        error=pulled.error,
    )


@shared_task
def pull_due(**_: object) -> None:
    """Tell workers which clusters are due. However many schedulers run, each is told of once."""
    for cluster_id, every in due.claim(moment=datetime.now(UTC)):
        # Of no use once the next one is due: then that one does its work.
        pull_usage.apply_async(kwargs={"cluster_id": cluster_id}, expires=every)


@shared_task
def forget_passes(**_: object) -> None:
    """Delete old passes that read nothing new; run again, there are none left."""
    passes.forget()
