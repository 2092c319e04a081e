"""What stories of e-invoices begin with: a seller and a public buyer of whom all is known that an XRechnung states."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

from billing.catalog import version_terms
from billing.models import Invoice, InvoiceDocument, TaxRate
from billing.tasks import render_document
from clusters.models import Cluster
from portal.core.tenants.models import Tenant
from tests.builders import a_job, a_seller, a_tenant, ingest, own
from tests.terms import GRADUATED, a_version

NORTH = {
    "country": "DE",
    "vat_id": "DE811234565",
    "registration": "HRB 1234 Hamburg",
    "postcode": "20457",
    "city": "Hamburg",
    "address": "Hafenstraße 1",
    "email": "billing@north.example",
    "contact_name": "Customer accounts",
    "contact_phone": "+49 40 5550123",
    "iban": "DE89370400440532013000",
    "bic": "COBADEFFXXX",
}
LAB = {"country": "DE", "tax_treatment": "by-country", "address": "Gate 1", "postcode": "10115"}
LAB |= {"city": "Berlin", "email": "ann@vision.example", "buyer_reference": "04011000-1234512345-06"}


def a_public_buyer(cluster: Cluster, *, fee_in_advance: bool = False) -> Tenant:
    """It has a Leitweg-ID.

    On tiers over two projects, with a fee and a discount: a third of a GPU-hour and 150 hours in March, at 19 %.
    """
    a_seller(**NORTH)
    TaxRate.objects.create(country="DE", rate=19, since=date(2021, 1, 1))
    TaxRate.objects.create(country="DE", rate=21, since=date(2026, 4, 1))
    version = a_version(GRADUATED, currency="EUR", effective_from=date(2026, 3, 1))
    version_terms.set_fee(version=version, name="Support", amount=Decimal("99.00"), in_advance=fee_in_advance)
    version_terms.set_discount(
        version=version, name="Partner", percent=Decimal(10), valid_from=date(2026, 3, 1)
    )
    fields: dict[str, Any] = dict(LAB)
    lab = a_tenant(plan=version.plan, plan_from=date(2026, 3, 1), accounts=[(cluster, "vision")], **fields)
    own(lab, cluster, "audio")
    ingest(
        cluster,
        a_job(account="vision", started="2026-03-10 10:00", ended="2026-03-10 10:20"),
        a_job(account="audio", gpus=150, started="2026-03-11 10:00", ended="2026-03-11 11:00"),
    )
    return lab


def rendered(invoice: Invoice) -> InvoiceDocument:
    render_document(invoice_id=invoice.pk)
    return InvoiceDocument.objects.get(invoice=invoice)


def xml_of(invoice: Invoice) -> bytes:
    document = rendered(invoice)
    assert document.einvoice is not None, document.no_einvoice
    return bytes(document.einvoice)
