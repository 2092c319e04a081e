"""What takes an invoice's total off, and what is left of it: said here once, for pages, commands and rounds."""

from __future__ import annotations

from typing import TypedDict

from django.db.models import (
    BigIntegerField,
    CharField,
    Exists,
    F,
    Max,
    OuterRef,
    QuerySet,
    Subquery,
    Sum,
    Value,
)
from django.db.models.expressions import Combinable
from django.db.models.functions import Cast, Coalesce, Greatest, Least
from django_stubs_ext import WithAnnotations

from billing.models import (
    UNDER_WAY,
    DisputeState,
    DocumentKind,
    DunningPolicy,
    Invoice,
    InvoiceState,
    Payment,
    PaymentAttempt,
    PaymentDispute,
    WriteOff,
)
from billing.rules.dunning_defaults import DEFAULTS


class InvoiceSums(TypedDict):
    """In minor units. left = total - (prepaid - to_wallet) - received - credited - written_off."""

    received: int
    credited: int  # by credit notes, above zero
    to_wallet: int  # of what is credited: given back to a wallet
    written_off: int  # as far as it is not paid or credited after all
    late_from: int  # days after due, by the policy of dunning
    under_way: bool  # money may yet come by an attempt to be paid
    disputed: str  # how a dispute stands that was not won: the last of "inquiry", "lost", "open"; "" for none


class InvoiceLeft(TypedDict):
    """In minor units; below zero: it is to be given back."""

    left: int


def with_sums(invoices: QuerySet[Invoice]) -> QuerySet[WithAnnotations[Invoice, InvoiceSums]]:
    """Each with what `settlement.compute_balance` reads."""
    disputes = PaymentDispute.objects.filter(attempt__invoice=OuterRef("pk")).exclude(state=DisputeState.WON)
    worst = disputes.order_by().values("attempt__invoice").annotate(worst=Max("state")).values("worst")
    return invoices.annotate(
        received=_received(),
        credited=_sum_credit_notes(-F("total")),
        to_wallet=_sum_credit_notes(-F("prepaid")),
        written_off=_written_off(_open_amount()),
        late_from=Coalesce(
            _past_due(tenant=OuterRef("tenant")), _past_due(tenant=None), Value(DEFAULTS.past_due)
        ),
        under_way=Exists(under_way()),
        disputed=Coalesce(Subquery(worst), Value(""), output_field=CharField()),
    )


def under_way() -> QuerySet[PaymentAttempt]:
    """The attempts for the outer query's invoice by which money may yet come."""
    return PaymentAttempt.objects.filter(UNDER_WAY, invoice=OuterRef("pk"))


def with_left(invoices: QuerySet[Invoice]) -> QuerySet[WithAnnotations[Invoice, InvoiceLeft]]:
    """Each of those that are issued and are to be paid, without credit notes, with what is left of it."""
    to_pay = invoices.filter(state=InvoiceState.ISSUED).exclude(kind=DocumentKind.CREDIT_NOTE)
    return to_pay.annotate(left=_open_amount() - _written_off(_open_amount()))


def _open_amount() -> Combinable:
    """What is neither paid nor credited."""
    return F("total") - F("prepaid") - _received() - _sum_credit_notes(F("prepaid") - F("total"))


def _written_off(still: Combinable) -> Combinable:
    """What of it was given up; below what was, where something came after all."""
    amounts = WriteOff.objects.filter(invoice=OuterRef("pk"), undone_at=None).values("amount")
    return Least(_minor(Subquery(amounts)), Greatest(still, Value(0)), output_field=BigIntegerField())


def _past_due(**whose: object) -> Subquery:
    policies = DunningPolicy.objects.filter(since__lte=OuterRef("due_on"), **whose)
    return Subquery(policies.order_by("-since").values("past_due")[:1])


def _received() -> Combinable:
    paid = Payment.objects.filter(invoice=OuterRef("pk")).order_by().values("invoice")
    return _minor(Subquery(paid.annotate(sum=Sum("amount")).values("sum")))


def _sum_credit_notes(of: Combinable) -> Combinable:
    """The sum over the credit notes that take back from it."""
    notes = Invoice.objects.issued().filter(original=OuterRef("pk")).order_by().values("original")
    return _minor(Subquery(notes.annotate(sum=Sum(of)).values("sum")))


def _minor(sum_of_rows: Subquery) -> Combinable:
    return Cast(Coalesce(sum_of_rows, 0), BigIntegerField())  # a sum of bigints is numeric
