"""What is left of invoices, and what took the rest off."""

from __future__ import annotations

from django.db import models

from billing.models.invoices import Invoice


class InvoiceBalance(models.Model):
    """Minor units. left = total - (prepaid - to_wallet) - received - credited - written_off.

    A view of the database, `billing_invoicebalance` in `portal/schema/views.sql`: read it with its invoices, by
    `Invoice.objects.with_balance()`.
    """

    invoice = models.OneToOneField(
        Invoice, on_delete=models.DO_NOTHING, primary_key=True, related_name="balance"
    )
    received = models.BigIntegerField()
    credited = models.BigIntegerField(help_text="By credit notes, above zero.")
    to_wallet = models.BigIntegerField(help_text="Of what is credited: given back to a wallet.")
    written_off = models.BigIntegerField(help_text="As far as it is not paid or credited after all.")
    left = models.BigIntegerField(help_text="Below zero: it is to be given back.")
    late_from = models.IntegerField(null=True, help_text="Days after due, where a policy of dunning says so.")
    under_way = models.BooleanField(help_text="Money may yet come by an attempt to be paid.")
    disputed = models.TextField(
        help_text="How a dispute stands that was not won: the last of inquiry, lost, open; empty for none."
    )

    class Meta:
        managed = False
        db_table = "billing_invoicebalance"

    def __str__(self) -> str:
        return f"{self.invoice_id}: {self.left}"


class InvoiceRemainder(models.Model):
    """The balance's `left`, for sums over all invoices: add it up in the database, and read it of no single invoice.

    A view of the database as well, `billing_invoiceremainder`.
    """

    invoice = models.OneToOneField(
        Invoice, on_delete=models.DO_NOTHING, primary_key=True, related_name="remainder"
    )
    left = models.BigIntegerField(help_text="Minor units; below zero it is to be given back.")

    class Meta:
        managed = False
        db_table = "billing_invoiceremainder"

    def __str__(self) -> str:
        return f"{self.invoice_id}: {self.left}"
