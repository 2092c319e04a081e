"""What waits for a person before money moves or e-mails are sent: payments, refunds, notices, addresses, accounts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

from django.db.models import CharField, F, Q, QuerySet, TextField, Value, Window
from django.db.models.functions import Concat, RowNumber

from billing.dunning import overdue_invoices
from billing.emails import contacts
from billing.emails.delivery import UNTOLD
from billing.models import (
    UNDECIDED,
    AttemptState,
    BlockState,
    DisputeState,
    EventState,
    GatewayEvent,
    Notice,
    NoticeKind,
    NoticeState,
    PaymentAttempt,
    PaymentDispute,
    SuspendedAccount,
)
from billing.payments import refunds, refunds_due
from billing.rules.money import Money

AT_ONCE = 20  # of each kind


@dataclass(frozen=True, slots=True)
class ReviewItem:
    """Something that waits for a person."""

    what: str  # "Payment", "Notice"
    sentence: str
    table: str  # where it is dealt with: a model's name in the administration
    slug: str = ""
    number: str = ""  # of the invoice that it is about
    act: str = ""  # what can be done about it here: "refund" to the card, or a "transfer" that is recorded


def list_review_items(*, moment: datetime, with_refunds_due: bool = True) -> list[ReviewItem]:
    """All that, twenty of each kind. Six queries at most.

    `with_refunds_due` may be False where the caller knows that no tenant is owed anything: to find that out here, the
    balances of all invoices are computed.
    """
    items = {kind: list[ReviewItem]() for kind in _KINDS}
    for row in _rows(moment):
        items[row.kind].append(_item(row))
    due = _list_refunds_due() if with_refunds_due else ()
    after = (*due, *items["notice"], *_list_refused_addresses(), *items["suspendedaccount"])
    before = (item for kind in _BEFORE_REFUNDS_DUE for item in items[kind])
    return [*_list_lockout(), *before, *after]


class _Row(NamedTuple):
    """One that waits, of any kind. `subject` and `state` mean what the kind's sentence takes them for."""

    kind: str
    slug: str
    number: str | None
    state: str
    text: str
    subject: str
    amount: int  # minor units
    currency: str


_BEFORE_REFUNDS_DUE: Final = (
    "paymentattempt",
    "paymentdispute",
    "given-back",
    "not-refunded",
    "gatewayevent",
)
_KINDS: Final = (*_BEFORE_REFUNDS_DUE, "notice", "suspendedaccount")


def _rows(moment: datetime) -> list[_Row]:
    """The oldest of each kind first. One query for all kinds."""
    stuck = Q(state=NoticeState.SENDING, sent_at__lt=moment - UNTOLD)
    blocks = SuspendedAccount.objects.filter(state__in=(BlockState.REQUESTED, BlockState.LIFTING))
    of_attempt = {"number": "attempt__invoice__number", "amount": "amount", "currency": "attempt__currency"}
    first, *others = (
        _oldest("paymentattempt", _attempts(), "created_at", number="invoice__number", text="message"),
        _oldest("paymentdispute", _disputes(), "opened_at", state="state", **of_attempt),
        _oldest("given-back", refunds.list_unexplained(), "created_at", **of_attempt),
        _oldest(
            "not-refunded",
            refunds.list_not_refunded(),
            "created_at",
            **of_attempt,
            text="reason",
            subject="credit_note__number",
        ),
        _oldest("gatewayevent", _events(), "received_at", slug="tenant_slug", text="reason"),
        _oldest(
            "notice",
            Notice.objects.filter(stuck | Q(state=NoticeState.FAILED)),
            "created_at",
            number="invoice__number",
            state="kind",
            text="reason",
        ),
        _oldest(
            "suspendedaccount",
            blocks.exclude(error=""),
            "pk",
            number="suspension__invoice__number",
            state="state",
            text="error",
            subject=Concat("account__cluster__name", Value("/"), "account__name", output_field=TextField()),
        ),
    )
    rows = sorted(first.union(*others, all=True), key=lambda row: (_KINDS.index(row[0]), row[1]))
    return [_Row(kind, *rest) for kind, _place, *rest in rows]


def _attempts() -> QuerySet[PaymentAttempt]:
    return PaymentAttempt.objects.filter(state=AttemptState.NEEDS_REVIEW)


def _disputes() -> QuerySet[PaymentDispute]:
    return PaymentDispute.objects.filter(state__in=UNDECIDED)


def _events() -> QuerySet[GatewayEvent]:
    return GatewayEvent.objects.filter(state=EventState.NEEDS_REVIEW)


def _oldest(
    kind: str,
    rows: QuerySet[Any],
    order: str,
    *,
    slug: str = "tenant__slug",
    number: str = "",
    state: str = "",
    text: str = "",
    subject: str | Concat = "",
    amount: str = "",
    currency: str = "",
) -> QuerySet[Any, Any]:
    """The columns of `_Row` behind their place in the order, each from that path; alike for all kinds."""
    columns = {
        "row_kind": Value(kind),
        "row_place": Window(RowNumber(), order_by=F(order).asc()),
        "row_slug": F(slug),
        "row_number": F(number) if number else Value("", CharField()),
        "row_state": F(state) if state else Value("", CharField()),
        "row_text": F(text) if text else Value("", TextField()),
        "row_subject": (F(subject) if isinstance(subject, str) else subject)
        if subject
        else Value("", TextField()),
        "row_amount": F(amount) if amount else Value(0),
        "row_currency": F(currency) if currency else Value("", CharField()),
    }
    oldest: QuerySet[Any, Any] = rows.order_by(order).annotate(**columns).values_list(*columns)[:AT_ONCE]
    return oldest


def _item(row: _Row) -> ReviewItem:
    what, table, act = _LABELS[row.kind]
    return ReviewItem(what, _SENTENCES[row.kind](row), table, row.slug, row.number or "", act)


_LABELS: Final[Mapping[str, tuple[str, str, str]]] = {
    "paymentattempt": ("Payment", "paymentattempt", ""),
    "paymentdispute": ("Dispute", "paymentdispute", ""),
    "given-back": ("Refund", "paymentrefund", ""),
    "not-refunded": ("Refund", "paymentrefund", "refund"),
    "gatewayevent": ("Event", "gatewayevent", ""),
    "notice": ("E-mail", "notice", ""),
    "suspendedaccount": ("Suspension", "suspendedaccount", ""),
}
"""What each kind is called, the table where it is dealt with, and what can be done about it at once."""


def _amount(row: _Row) -> str:
    amount = Money.from_minor(row.amount, row.currency)
    return f"{amount.text} {amount.currency}"


def _dispute(row: _Row) -> str:
    if row.state == DisputeState.INQUIRY:
        return f"A bank inquires about {_amount(row)}: respond at the gateway, or refund it."
    return f"The payer disputes {_amount(row)}: respond at the gateway."


def _unexplained_refund(row: _Row) -> str:
    return (
        f"{_amount(row)} refunded at the gateway without a credit note is due again: issue a credit note, or keep the "
        "balance open in the administration."
    )


def _not_refunded(row: _Row) -> str:
    return (
        f"The refund of {_amount(row)} for {row.subject} failed: {row.text.rstrip('.')}. Refund it again, or transfer "
        "the money and record the transfer."
    )


def _notice(row: _Row) -> str:
    why = row.text or "No answer from the mail server: the e-mail may have arrived."
    return f"{NoticeKind(row.state).label}: {why}"


def _account(row: _Row) -> str:
    act = "blocked" if row.state == BlockState.REQUESTED else "unblocked"
    return f"{row.subject} is not {act} yet: {row.text} Retrying."


_SENTENCES: Final[Mapping[str, Callable[[_Row], str]]] = {
    "paymentattempt": lambda row: row.text,
    "paymentdispute": _dispute,
    "given-back": _unexplained_refund,
    "not-refunded": _not_refunded,
    "gatewayevent": lambda row: row.text,
    "notice": _notice,
    "suspendedaccount": _account,
}


def _list_lockout() -> Iterator[ReviewItem]:
    if why := overdue_invoices.lockout_reason():
        yield ReviewItem("Key", f"{why} Nothing is charged and no e-mails are sent.", "")


def _list_refunds_due() -> Iterator[ReviewItem]:
    """Without those whose refund failed, which are rows of their own with the reason."""
    for refund_due in refunds_due.list_due(limit=AT_ONCE):
        if not refund_due.failed:
            act = "refund" if refund_due.to_card.amount else "transfer"
            number, slug = refund_due.invoice.number or "", refund_due.invoice.tenant.slug
            yield ReviewItem("Refund due", refund_due.sentence, "", slug, number, act)


def _list_refused_addresses() -> Iterator[ReviewItem]:
    for notice, refused in contacts.list_refused_notices(limit=AT_ONCE):
        for to, why in refused.items():
            message = f"The mail server refuses {to}: {why.rstrip('.')}. Correct the tenant's billing e-mail."
            yield ReviewItem("E-mail address", message, "notice", notice.tenant.slug)
