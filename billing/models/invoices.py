"""What is owed. An issued invoice's rows never change: the database refuses."""

from __future__ import annotations

from typing import ClassVar

import pgtrigger
from django.db import models
from django.db.models import F, Q, QuerySet

from billing.models import guards
from billing.models.rated import BillingPeriod
from billing.models.signing import SigningKey
from billing.rules.tax import Tax
from portal.core.audit import track
from portal.core.tenants.models import Tenant


class InvoiceState(models.TextChoices):
    """The document's life; whether it is paid is derived beside it."""

    DRAFT = "draft", "Draft"
    PENDING_APPROVAL = "pending-approval", "Held for approval"
    ISSUED = "issued", "Issued"
    VOID = "void", "Void"


MOVES: dict[InvoiceState, frozenset[InvoiceState]] = {
    InvoiceState.DRAFT: frozenset({InvoiceState.PENDING_APPROVAL, InvoiceState.ISSUED}),
    InvoiceState.PENDING_APPROVAL: frozenset({InvoiceState.DRAFT, InvoiceState.ISSUED}),
    InvoiceState.ISSUED: frozenset({InvoiceState.VOID}),
    InvoiceState.VOID: frozenset(),
}
"""The moves that a document may make; the database holds the same table."""


class DocumentKind(models.TextChoices):
    """What a document of the series of invoices and credit notes is."""

    INVOICE = "invoice", "Invoice"
    CORRECTION = "correction", "Invoice of corrections"
    CREDIT_NOTE = "credit-note", "Credit note"


CLOSED_PERIOD = "closed_period"
"""Of a credit note's terms: whose close issued it. Its own period is that of its invoice."""


class TaxCategory(models.TextChoices):
    """Why a line is taxed as it is; the codes of EN 16931."""

    STANDARD = "S", "Taxed"
    ZERO = "Z", "Zero-rated"
    EXEMPT = "E", "Exempt"
    REVERSE_CHARGE = "AE", "Reverse charge"
    EXPORT = "G", "Supplied to outside the EU"
    OUTSIDE = "O", "Outside the scope of tax"


class InvoiceQuerySet(QuerySet["Invoice"]):
    """Invoices by what they are to people."""

    def issued(self) -> InvoiceQuerySet:
        return self.filter(state=InvoiceState.ISSUED)

    def of_periods(self) -> InvoiceQuerySet:
        """The one invoice that each period has, without credit notes and invoices of corrections."""
        return self.filter(kind=DocumentKind.INVOICE)

    def with_balance(self) -> InvoiceQuerySet:
        """Each with what `settlement.compute_balance` reads: one query more, for the rows of a page alone."""
        return self.prefetch_related("balance")

    def to_settle(self) -> InvoiceQuerySet:
        """Those that are issued and are to be paid, without credit notes, each with its balance."""
        return self.issued().exclude(kind=DocumentKind.CREDIT_NOTE).select_related("balance")

    def unpaid(self) -> InvoiceQuerySet:
        """Those of them of which something is left to be paid."""
        return self.to_settle().filter(balance__left__gt=0)

    def overpaid(self) -> InvoiceQuerySet:
        """Those of which more is paid than is owed."""
        return self.to_settle().filter(balance__left__lt=0)


@track()
class Invoice(models.Model):
    """One tenant's invoice for one billing period, or a credit note: below zero, for a part of one invoice.

    Money is in minor units of `currency`.
    """

    kind = models.CharField(max_length=12, choices=DocumentKind.choices, default=DocumentKind.INVOICE)
    original = models.ForeignKey(
        "self",
        on_delete=models.PROTECT,
        null=True,
        related_name="credit_notes",
        help_text="The invoice that a credit note takes back from.",
    )
    replaces = models.ForeignKey(
        "self",
        on_delete=models.PROTECT,
        null=True,
        related_name="replacements",
        help_text="The void invoice of the same period that this one stands for.",
    )
    reason = models.TextField(blank=True, help_text="Why a credit note was made.")
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="invoices")
    period = models.ForeignKey(BillingPeriod, on_delete=models.PROTECT, related_name="invoices")
    state = models.CharField(max_length=16, choices=InvoiceState.choices, default=InvoiceState.DRAFT)
    number = models.CharField(max_length=40, null=True, unique=True)  # a draft has none, not ''
    currency = models.CharField(max_length=3)
    period_start = models.DateTimeField()
    period_end = models.DateTimeField()
    timezone = models.CharField(max_length=64)
    issued_on = models.DateField(null=True)
    due_on = models.DateField(null=True)
    seller = models.JSONField(help_text="Frozen copy of the seller.")
    buyer = models.JSONField(help_text="Frozen copy of the tenant's billing address.")
    terms = models.JSONField(
        default=dict, help_text="Frozen: why usage may be missing, who credited it, how it looks."
    )
    subtotal = models.BigIntegerField(default=0)
    tax_name = models.CharField(max_length=40, default="VAT")
    tax_rate = models.DecimalField(max_digits=6, decimal_places=3, default=0)
    tax = models.BigIntegerField(default=0)
    total = models.BigIntegerField(default=0)
    prepaid = models.BigIntegerField(
        default=0,
        help_text="Minor units that a wallet paid when it was issued; below zero: what a credit note gave back to it.",
    )
    from_credit = models.BigIntegerField(
        default=0, help_text="Minor units that the tenant's credit balance paid when it was issued."
    )
    rated_through = models.BigIntegerField(
        help_text="Newest rated row of the tenant that this covers, in periods up to its own; beyond: pending."
    )

    objects = InvoiceQuerySet.as_manager()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["tenant", "period"],
                condition=~Q(state="void") & Q(kind="invoice"),
                name="one_invoice_per_tenant_and_period",
            ),
            models.CheckConstraint(
                condition=Q(kind__in=["invoice", "correction"], original__isnull=True)
                | Q(kind="credit-note", original__isnull=False, total__lte=0, replaces__isnull=True),
                name="credit_note_takes_back_from_an_invoice",
            ),
            models.CheckConstraint(
                condition=Q(total=F("subtotal") + F("tax")), name="invoice_net_plus_tax_is_total"
            ),
            models.CheckConstraint(
                condition=Q(state__in=["draft", "pending-approval"])
                | Q(number__isnull=False, issued_on__isnull=False, due_on__isnull=False),
                name="issued_invoice_has_number_and_dates",
            ),
            models.CheckConstraint(condition=Q(state__in=InvoiceState.values), name="invoice_state_is_known"),
            models.CheckConstraint(
                condition=Q(prepaid=0)
                | Q(prepaid__gt=0, prepaid__lte=F("total"))
                | Q(kind="credit-note", prepaid__lt=0, prepaid__gte=F("total")),
                name="wallet_pays_a_part_of_the_total",
            ),
            models.CheckConstraint(
                condition=Q(from_credit=0)
                | (~Q(kind="credit-note") & Q(from_credit__gt=0, from_credit__lte=F("total") - F("prepaid"))),
                name="credit_pays_a_part_of_what_is_left",
            ),
        ]
        triggers: ClassVar = [
            pgtrigger.Trigger(
                name="issued_invoice_is_frozen",
                when=pgtrigger.Before,
                operation=pgtrigger.Update | pgtrigger.Delete,
                func=guards.INVOICE,
            ),
            pgtrigger.Trigger(
                name="held_invoice_is_issued_with_approval",
                when=pgtrigger.Before,
                operation=pgtrigger.Update,
                condition=pgtrigger.Condition(
                    "NEW.state = 'issued' AND OLD.state <> 'issued' AND NEW.kind <> 'credit-note'"
                ),
                func=guards.PENDING_APPROVAL,
            ),
            pgtrigger.Trigger(
                name="credit_note_is_no_older_than_its_invoice",
                when=pgtrigger.Before,
                operation=pgtrigger.Update,
                condition=pgtrigger.Condition(
                    "NEW.state = 'issued' AND OLD.state <> 'issued' AND NEW.original_id IS NOT NULL"
                ),
                func=guards.CREDIT_DATE,
            ),
        ]

    def __str__(self) -> str:
        return self.number or f"draft {self.pk}"

    @property
    def amount_requested(self) -> int:
        """What the document asks for, in minor units: as things stood when it was issued."""
        return self.total - self.prepaid - self.from_credit


class LineKind(models.TextChoices):
    """What a line charges for: use, by a project, of a meter at a price; or a term of the plan."""

    USAGE = "usage", "Use of a meter at a price"
    FEE = "fee", "Flat fee"
    COMMITMENT = "commitment", "Minimum commitment"
    DISCOUNT = "discount", "Discount"
    CREDIT = "credit", "Credited by hand"
    MANUAL = "manual", "Added by hand"


class InvoiceLine(models.Model):
    """One project's use of one meter at one price in one service period, or a term of the plan; rounded once, here."""

    invoice = models.ForeignKey(Invoice, on_delete=models.PROTECT, related_name="lines")
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, db_index=False, related_name="+")
    position = models.PositiveIntegerField()
    service_period = models.ForeignKey(BillingPeriod, on_delete=models.PROTECT, related_name="lines")
    kind = models.CharField(max_length=12, choices=LineKind.choices, default=LineKind.USAGE)
    term_id = models.BigIntegerField(null=True, help_text="The term that it states: the row of its kind.")
    project_id = models.BigIntegerField(null=True)
    project = models.CharField(
        max_length=420,
        blank=True,
        help_text="Frozen name, behind that of the tenant it was used by where that is another; empty: of the whole "
        "tenant.",
    )
    meter = models.CharField(max_length=40, blank=True)
    price_id = models.BigIntegerField(null=True)
    description = models.TextField()
    seconds_num = models.DecimalField(
        max_digits=40, decimal_places=0, help_text="Exact resource-seconds = seconds_num / seconds_den."
    )
    seconds_den = models.BigIntegerField()
    unit = models.CharField(max_length=40, blank=True)
    unit_code = models.CharField(
        max_length=3, blank=True, help_text="Of a declared meter: its unit's, of UN/ECE recommendation 20."
    )
    unit_price = models.DecimalField(
        max_digits=24, decimal_places=12, null=True, help_text="Empty where `terms` say how it is priced."
    )
    terms = models.JSONField(default=dict, help_text="Frozen: by what it can be computed again.")
    amount = models.BigIntegerField(help_text="Minor units.")
    correction = models.BooleanField(default=False, help_text="Of an earlier service period.")
    first_charge = models.BooleanField(
        default=False,
        help_text="Of an earlier service period, of which nothing was billed before: no correction.",
    )
    original = models.ForeignKey(
        "self",
        on_delete=models.PROTECT,
        null=True,
        related_name="credits",
        help_text="The line of an issued invoice that this one takes back from.",
    )
    tax_category = models.CharField(max_length=2, choices=TaxCategory.choices, default=TaxCategory.STANDARD)
    tax_rate = models.DecimalField(max_digits=6, decimal_places=3, default=0, help_text="Per cent.")

    class Meta:
        indexes: ClassVar = [
            # Whether a line by hand was billed is asked at each close; there are few among all lines.
            models.Index(fields=["term_id"], condition=Q(kind="manual"), name="lines_by_hand"),
            # And for which terms of plans a tenant was billed, whether or not it has them still.
            models.Index(
                fields=["tenant", "service_period"],
                condition=Q(kind__in=["fee", "commitment", "discount"]),
                name="lines_of_terms",
            ),
        ]
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["invoice", "position"], name="line_stands_once_on_its_invoice"),
            models.CheckConstraint(
                condition=Q(first_charge=False) | Q(correction=True),
                name="first_charge_is_of_an_earlier_period",
            ),
            models.CheckConstraint(
                condition=~Q(kind="usage")
                | (Q(price_id__isnull=False, project_id__isnull=False, term_id__isnull=True) & ~Q(meter="")),
                name="line_of_usage_has_project_and_price",
            ),
        ]
        triggers: ClassVar = [
            pgtrigger.Trigger(
                name="issued_line_is_frozen",
                when=pgtrigger.Before,
                operation=pgtrigger.Insert | pgtrigger.Update | pgtrigger.Delete,
                func=guards.part("lines"),
            )
        ]

    def __str__(self) -> str:
        return f"{self.invoice} line {self.position}"

    @property
    def corrects(self) -> bool:
        """Whether it changes what was billed of an earlier period, rather than charging for it the first time."""
        return self.correction and not self.first_charge

    @property
    def taxed_as(self) -> Tax:
        return Tax(self.tax_category, self.tax_rate)

    def used_by(self) -> int | None:
        """The tenant that used it, where the invoice is another's, which pays. `service_period` has to be loaded."""
        user: int = self.service_period.tenant_id
        return None if user == self.tenant_id else user


class InvoiceTax(models.Model):
    """What the lines of one tax come to, and the tax on it: rounded here, once."""

    invoice = models.ForeignKey(Invoice, on_delete=models.PROTECT, related_name="taxes")
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, db_index=False, related_name="+")
    category = models.CharField(max_length=2, choices=TaxCategory.choices)
    rate = models.DecimalField(max_digits=6, decimal_places=3, help_text="Per cent.")
    net = models.BigIntegerField(help_text="Minor units.")
    tax = models.BigIntegerField(help_text="Minor units.")
    reason = models.CharField(
        max_length=300, blank=True, help_text="Why no tax is charged, as it has to stand on the invoice."
    )

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["invoice", "category", "rate"], name="tax_stands_once_on_its_invoice"
            ),
            models.CheckConstraint(condition=Q(rate__range=(0, 100)), name="invoice_tax_is_a_percentage"),
        ]
        triggers: ClassVar = [
            pgtrigger.Trigger(
                name="issued_tax_is_frozen",
                when=pgtrigger.Before,
                operation=pgtrigger.Insert | pgtrigger.Update | pgtrigger.Delete,
                func=guards.part("taxes"),
            )
        ]

    def __str__(self) -> str:
        return f"{self.invoice}: {self.category} {self.rate}"

    @property
    def taxed_as(self) -> Tax:
        return Tax(self.category, self.rate)


@track()
class Voiding(models.Model):
    """That an issued invoice does not hold any more: who said so, when, and why. It keeps its number."""

    invoice = models.OneToOneField(Invoice, on_delete=models.PROTECT, related_name="voiding")
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    on = models.DateField()
    reason = models.TextField()
    by = models.CharField(max_length=200)

    class Meta:
        triggers: ClassVar = [
            pgtrigger.Trigger(
                name="voiding_is_final",
                when=pgtrigger.Before,
                operation=pgtrigger.Insert | pgtrigger.Update | pgtrigger.Delete,
                func=guards.VOIDING,
            )
        ]

    def __str__(self) -> str:
        return f"{self.invoice}: {self.reason}"


class InvoiceDocument(models.Model):
    """The bytes that were sent, kept as they were."""

    invoice = models.OneToOneField(Invoice, on_delete=models.PROTECT, related_name="document")
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    pdf = models.BinaryField()
    sha256 = models.CharField(max_length=64)
    einvoice = models.BinaryField(null=True, help_text="The XML that the PDF carries.")
    no_einvoice = models.TextField(blank=True, help_text="Why there is none.")
    key = models.ForeignKey(SigningKey, on_delete=models.PROTECT, related_name="+")
    signature = models.CharField(max_length=88, help_text="Base64, of `documents.json` of the evidence.")

    class Meta:
        triggers: ClassVar = [
            pgtrigger.Protect(name="document_is_frozen", operation=pgtrigger.Update | pgtrigger.Delete)
        ]

    def __str__(self) -> str:
        return f"PDF of {self.invoice}"
