"""What is owed and what was paid. An issued invoice's rows never change: the database refuses."""

from __future__ import annotations

from typing import ClassVar

import pgtrigger
from django.db import models
from django.db.models import F, Q, QuerySet

from billing.models.rated import BillingPeriod
from billing.rules.money import Money
from portal.audit import track
from portal.tenants.models import Tenant


@track()
class Seller(models.Model):
    """Who issues the invoices; copied onto each when it is issued."""

    code = models.SlugField(unique=True, default="default")
    name = models.CharField(max_length=200)
    address = models.TextField(blank=True)
    vat_id = models.CharField("VAT id", max_length=40, blank=True)
    registration = models.CharField(max_length=200, blank=True)
    email = models.EmailField(blank=True)
    iban = models.CharField("IBAN", max_length=42, blank=True)
    bic = models.CharField("BIC", max_length=11, blank=True)
    invoice_prefix = models.CharField(max_length=12, default="INV")
    tax_name = models.CharField(max_length=40, default="VAT")

    def __str__(self) -> str:
        return self.name


class InvoiceSeries(models.Model):
    """A gapless run of numbers. Its row is locked by the transaction that issues."""

    name = models.CharField(max_length=40, unique=True)
    last_number = models.PositiveIntegerField(default=0)

    class Meta:
        verbose_name_plural = "invoice series"

    def __str__(self) -> str:
        return self.name


class InvoiceState(models.TextChoices):
    """The document's life; whether it is paid is derived beside it."""

    DRAFT = "draft", "Draft"
    PARKED = "parked", "Parked for approval"
    ISSUED = "issued", "Issued"
    VOID = "void", "Void"


MOVES: dict[InvoiceState, frozenset[InvoiceState]] = {
    InvoiceState.DRAFT: frozenset({InvoiceState.PARKED, InvoiceState.ISSUED}),
    InvoiceState.PARKED: frozenset({InvoiceState.DRAFT, InvoiceState.ISSUED}),
    InvoiceState.ISSUED: frozenset({InvoiceState.VOID}),
    InvoiceState.VOID: frozenset(),
}
"""The moves that a document may make; the database holds the same table."""

_GUARD_INVOICE = """
IF TG_OP = 'DELETE' THEN
    IF OLD.state IN ('issued', 'void') THEN
        RAISE EXCEPTION 'Invoice % is issued and cannot be deleted: correct it with a credit note.', OLD.number;
    END IF;
    RETURN OLD;
END IF;
IF OLD.state IN ('issued', 'void')
   AND (to_jsonb(NEW) - 'state') IS DISTINCT FROM (to_jsonb(OLD) - 'state') THEN
    RAISE EXCEPTION 'Invoice % is issued and cannot be changed: correct it with a credit note.', OLD.number;
END IF;
IF NEW.state <> OLD.state AND (OLD.state, NEW.state) NOT IN (
    ('draft', 'parked'), ('draft', 'issued'), ('parked', 'draft'), ('parked', 'issued'), ('issued', 'void')) THEN
    RAISE EXCEPTION 'An invoice cannot go from % to %.', OLD.state, NEW.state;
END IF;
IF NEW.state = 'issued' AND OLD.state <> 'issued' AND NEW.subtotal <> (
    SELECT coalesce(sum(amount), 0) FROM billing_invoiceline WHERE invoice_id = NEW.id) THEN
    RAISE EXCEPTION 'The lines of invoice % do not add up to its subtotal.', NEW.number;
END IF;
RETURN NEW;
"""

_GUARD_LINE = """
IF TG_OP <> 'INSERT' AND (SELECT state FROM billing_invoice WHERE id = OLD.invoice_id) IN ('issued', 'void') THEN
    RAISE EXCEPTION 'The lines of an issued invoice cannot be changed: correct it with a credit note.';
END IF;
IF TG_OP <> 'DELETE' AND (SELECT state FROM billing_invoice WHERE id = NEW.invoice_id) IN ('issued', 'void') THEN
    RAISE EXCEPTION 'An issued invoice takes no more lines: correct it with a credit note.';
END IF;
RETURN CASE WHEN TG_OP = 'DELETE' THEN OLD ELSE NEW END;
"""


class InvoiceQuerySet(QuerySet["Invoice"]):
    """Invoices by what they are to people."""

    def issued(self) -> InvoiceQuerySet:
        return self.filter(state=InvoiceState.ISSUED)


@track()
class Invoice(models.Model):
    """One tenant's invoice for one billing period. Money is in minor units of `currency`."""

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="invoices")
    period = models.ForeignKey(BillingPeriod, on_delete=models.PROTECT, related_name="invoices")
    state = models.CharField(max_length=10, choices=InvoiceState.choices, default=InvoiceState.DRAFT)
    number = models.CharField(max_length=40, null=True, unique=True)  # a draft has none, not ''
    currency = models.CharField(max_length=3)
    period_start = models.DateTimeField()
    period_end = models.DateTimeField()
    timezone = models.CharField(max_length=64)
    issued_on = models.DateField(null=True)
    due_on = models.DateField(null=True)
    seller = models.JSONField(help_text="Frozen copy of the seller.")
    buyer = models.JSONField(help_text="Frozen copy of the tenant's billing address.")
    terms = models.JSONField(default=dict, help_text="Frozen plan name and acceptance of incompleteness.")
    subtotal = models.BigIntegerField(default=0)
    tax_name = models.CharField(max_length=40, default="VAT")
    tax_rate = models.DecimalField(max_digits=6, decimal_places=3, default=0)
    tax = models.BigIntegerField(default=0)
    total = models.BigIntegerField(default=0)
    rated_through = models.BigIntegerField(
        help_text="Newest rated row of the tenant that this covers, in periods up to its own; beyond: pending."
    )

    objects = InvoiceQuerySet.as_manager()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["tenant", "period"],
                condition=~Q(state="void"),
                name="one_invoice_per_tenant_and_period",
            ),
            models.CheckConstraint(
                condition=Q(total=F("subtotal") + F("tax")), name="invoice_net_plus_tax_is_total"
            ),
            models.CheckConstraint(
                condition=Q(state__in=["draft", "parked"])
                | Q(number__isnull=False, issued_on__isnull=False, due_on__isnull=False),
                name="issued_invoice_has_number_and_dates",
            ),
            models.CheckConstraint(condition=Q(state__in=InvoiceState.values), name="invoice_state_is_known"),
        ]
        triggers: ClassVar = [
            pgtrigger.Trigger(
                name="issued_invoice_is_frozen",
                when=pgtrigger.Before,
                operation=pgtrigger.Update | pgtrigger.Delete,
                func=_GUARD_INVOICE,
            )
        ]

    def __str__(self) -> str:
        return self.number or f"draft {self.pk}"


class InvoiceLine(models.Model):
    """One project's use of one meter at one price in one service period; rounded here, once."""

    invoice = models.ForeignKey(Invoice, on_delete=models.PROTECT, related_name="lines")
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, db_index=False, related_name="+")
    position = models.PositiveIntegerField()
    service_period = models.ForeignKey(BillingPeriod, on_delete=models.PROTECT, related_name="lines")
    project_id = models.BigIntegerField()
    project = models.CharField(max_length=200, help_text="Frozen name.")
    meter = models.CharField(max_length=20)
    price_id = models.BigIntegerField()
    description = models.TextField()
    seconds_num = models.DecimalField(
        max_digits=40, decimal_places=0, help_text="Exact resource-seconds = seconds_num / seconds_den."
    )
    seconds_den = models.BigIntegerField()
    unit = models.CharField(max_length=20)
    unit_price = models.DecimalField(max_digits=24, decimal_places=12)
    amount = models.BigIntegerField(help_text="Minor units.")
    correction = models.BooleanField(default=False, help_text="Of an earlier service period.")

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["invoice", "position"], name="line_stands_once_on_its_invoice")
        ]
        triggers: ClassVar = [
            pgtrigger.Trigger(
                name="issued_line_is_frozen",
                when=pgtrigger.Before,
                operation=pgtrigger.Insert | pgtrigger.Update | pgtrigger.Delete,
                func=_GUARD_LINE,
            )
        ]

    def __str__(self) -> str:
        return f"{self.invoice} line {self.position}"


class InvoiceDocument(models.Model):
    """The bytes that were sent, kept as they were."""

    invoice = models.OneToOneField(Invoice, on_delete=models.PROTECT, related_name="document")
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    pdf = models.BinaryField()
    sha256 = models.CharField(max_length=64)

    class Meta:
        triggers: ClassVar = [
            pgtrigger.Protect(name="document_is_frozen", operation=pgtrigger.Update | pgtrigger.Delete)
        ]

    def __str__(self) -> str:
        return f"PDF of {self.invoice}"


@track()
class Payment(models.Model):
    """Money that arrived for an invoice; a mistake is taken back by a negative one."""

    invoice = models.ForeignKey(Invoice, on_delete=models.PROTECT, related_name="payments")
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    amount = models.BigIntegerField(help_text="Minor units of the invoice's currency.")
    received_on = models.DateField()
    reference = models.CharField(max_length=200, help_text="As on the bank statement.")
    recorded_by = models.CharField(max_length=200)

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(condition=~Q(amount=0), name="payment_is_not_nothing"),
            models.UniqueConstraint(
                fields=["invoice", "reference", "received_on", "amount"], name="payment_is_recorded_once"
            ),
        ]
        triggers: ClassVar = [
            pgtrigger.Protect(name="payment_is_append_only", operation=pgtrigger.Update | pgtrigger.Delete)
        ]

    def __str__(self) -> str:
        currency = self.invoice.currency
        return f"{self.reference}: {Money.from_minor(self.amount, currency).text} {currency}"


class CloseProof(models.Model):
    """The conservation sums as they stood when a tenant's period was closed."""

    period = models.ForeignKey(BillingPeriod, on_delete=models.PROTECT, related_name="proofs")
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    closed_at = models.DateTimeField()
    accepted_incomplete = models.TextField(
        blank=True, help_text="The operator's reason, where there was one."
    )
    sums = models.JSONField()

    def __str__(self) -> str:
        return f"close of {self.period}"
