"""What a credit note will do to the money, before it is issued."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Final

from django.db import transaction
from django.db.models import Exists, OuterRef

from billing.invoicing import corrections, credit_notes, line_taxes
from billing.models import CreditState, Invoice, InvoiceLine, RatedUsage, ServiceCredit
from billing.payments import refunds_due
from billing.receivables import settlement
from billing.rules.money import Money

NAMED: Final = 5
"""Jobs that a preview names."""


@dataclass(frozen=True, slots=True)
class CreditPreview:
    """Amounts with tax. credited = less due + to the wallet + owed to the tenant, where nothing was overpaid before."""

    invoice: Invoice
    credited: Money
    less_due: Money
    to_wallet: Money
    owed_back: Money
    to_card: Money  # of what is owed then, what can be refunded to a card
    stays: Money  # before tax: of its charges, though nothing of its total is left, as it took off so much
    by_rules: Sequence[ServiceCredit]  # of jobs on its lines: what failure rules have credited

    @property
    def sentence(self) -> str:
        currency = self.credited.currency
        sentences = [
            f"{self.invoice} of {self.invoice.tenant}: a credit note over {self.credited.text} {currency}."
        ]
        if self.less_due.amount:
            sentences.append(f"The tenant has {self.less_due.text} less to pay.")
        if self.to_wallet.amount:
            sentences.append(f"{self.to_wallet.text} returns to its wallet.")
        if self.owed_back.amount:
            sentences.append(
                f"{self.owed_back.text} were paid and will be owed to the tenant; no money moves automatically."
            )
            sentences.append(
                f"{self.to_card.text} can be refunded to the card afterwards, on the page Collections."
                if self.to_card.amount
                else "Transfer the money afterwards and record that, on the page Collections."
            )
        if self.stays.amount:
            sentences.append(
                f"Of its charges {self.stays.text} before tax stay, since it took off as much for earlier periods: to "
                "give them back, too, add a line by hand."
            )
        if self.by_rules:
            sentences.append(self._credited_before)
        return " ".join(sentences)

    @property
    def _credited_before(self) -> str:
        jobs = ", ".join(credit.job_id for credit in self.by_rules[:NAMED])
        others = f" and {len(self.by_rules) - NAMED} more" if len(self.by_rules) > NAMED else ""
        total = Money.from_minor(sum(credit.amount or 0 for credit in self.by_rules), self.credited.currency)
        return (
            f"Failure rules have credited jobs of these lines already, {total.text} {total.currency} in all "
            f"({jobs}{others}): credit an amount without them."
        )


def preview_credit(
    *, invoice: Invoice, on: date, moment: datetime, net: Money | None = None, position: int | None = None
) -> CreditPreview:
    """What `issue_credit_note` would do, by doing it and undoing all of it. Raises CreditError as that does."""
    with transaction.atomic():
        before = settlement.load_balance(invoice=invoice, on=on)
        note = credit_notes.issue_credit_note(
            invoice=invoice, reason="Preview.", by="preview", on=on, net=net, position=position, moment=moment
        )
        after = settlement.load_balance(invoice=invoice, on=on)
        due = refunds_due.list_due(limit=1, invoice=invoice)
        stays, by_rules = _load_rest(invoice), _credited_by_rules(note)
        transaction.set_rollback(True)
    zero = Money.zero(invoice.currency)
    return CreditPreview(
        invoice=invoice,
        credited=-Money.from_minor(note.total, note.currency),
        less_due=max(before.due, zero) - max(after.due, zero),
        to_wallet=before.from_wallet - after.from_wallet,
        owed_back=max(-after.due, zero) - max(-before.due, zero),
        to_card=due[0].to_card if due else zero,
        stays=Money.from_minor(stays, invoice.currency),
        by_rules=by_rules,
    )


def _load_rest(invoice: Invoice) -> int:
    """What its lines charge that no credit note can give back, in minor units. Three queries."""
    lines = list(invoice.lines.all())
    billed = corrections.load_billed_lines(lines)
    if line_taxes.total_with_tax(billed.invoices[invoice.pk], invoice.currency).amount:
        return 0
    return sum(max(billed.left(line.pk), 0) for line in lines)


def _credited_by_rules(note: Invoice) -> list[ServiceCredit]:
    """Of jobs on the lines that it credits. One query."""
    lines = InvoiceLine.objects.filter(
        pk__in=note.lines.values("original"),
        service_period=OuterRef("period_id"),
        project_id=OuterRef("project_id"),
        price_id=OuterRef("price_id"),
    )
    rated = RatedUsage.objects.filter(
        Exists(lines), tenant_id=note.tenant_id, record_id=OuterRef("record_id")
    )
    rows = ServiceCredit.objects.filter(Exists(rated), tenant=note.tenant_id, state=CreditState.CREDITED)
    return list(rows.exclude(line=None).order_by("pk"))
