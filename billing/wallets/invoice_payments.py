"""Paying invoices out of wallets, for tenants whose plan says that its wallet pays first.

What is drawn is spent by choice: never below what grants hold and nobody has set aside, and never the overdraft.
A prepaid balance is a means of payment, so what it pays changes neither the lines of an invoice nor its taxes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from fractions import Fraction
from math import lcm
from zoneinfo import ZoneInfo

from django.db import transaction
from django.db.models import Min, Sum

from billing.models import DayTotal, DocumentKind, Invoice, InvoiceState, Payer, Settles, Subscription
from billing.models.wallets import (
    CreditsGo,
    EntrySide,
    Wallet,
    WalletBooking,
    WalletEntry,
    WalletGrant,
    WalletScope,
)
from billing.rules.money import Money, split
from billing.rules.period import last_day, midnight
from billing.rules.wallet import Piece, give_back, pay
from billing.wallets import booking, replay
from billing.wallets.entries import Booking, grants_of, locked, post
from billing.wallets.replay import Change

_DAY = timedelta(days=1)


def settle_invoices(documents: Sequence[Invoice], *, moment: datetime | None) -> None:
    """Let wallets pay what they can of invoices that are about to be issued, and take back what credit notes give.

    For a caller that holds the tenants' locks and has given the documents their numbers and days. `moment` None:
    the beginning of the day on which each is issued. One query where no tenant's wallet pays first.
    """
    notes = [
        note
        for note in documents
        if note.kind == DocumentKind.CREDIT_NOTE and note.original is not None and note.original.prepaid
    ]
    wallets = _wallets(
        [document for document in documents if document.kind != DocumentKind.CREDIT_NOTE and document.total]
    )
    _book_use(set(wallets.values()), moment)
    rows = locked(set(wallets.values()) | _paid_by(notes))
    for document in documents:
        at = moment or _beginning(document)
        if document.pk in wallets:
            _draw(rows[wallets[document.pk]], document, at)
        elif document in notes:
            _return(rows, document, at)


def _book_use(wallets: Iterable[int], moment: datetime | None) -> None:
    """What was used on another plan and is not booked yet is not there to pay invoices, be a worker asleep or not."""
    if moment is None or not wallets:
        return
    behind = WalletBooking.objects.filter(due=True, tenant__wallets__in=wallets).select_related("tenant")
    for row in behind.distinct().order_by("pk"):
        booking.book(tenant=row.tenant, moment=moment)


@transaction.atomic
def take_back(*, invoice: Invoice, at: datetime) -> None:
    """Give back to their grants what a wallet paid on an invoice that becomes void.

    Its period opens again, so what returns to a grant that has expired pays for the days of that period once more,
    and for no other.
    """
    drawn = _drawn(invoice)
    if not drawn:
        return
    (row,) = locked(_paid_by_invoices([invoice.pk])).values()
    pieces = give_back(sum(piece.amount for piece in drawn), drawn)
    _give_again(
        row, Booking(pieces, EntrySide.INVOICE, at, f"{invoice.number} became void", invoice=invoice.pk)
    )


def entries(invoice: Invoice) -> list[tuple[WalletGrant, int]]:
    """The grants that paid on the invoice when it was issued, in that order, and how much, in smallest units."""
    rows = WalletEntry.objects.filter(invoice=invoice, side=EntrySide.BALANCE, amount__lt=0)
    by_grant = rows.select_related("grant").order_by("pk")
    return [(row.grant, -row.amount) for row in by_grant if row.grant is not None]


def _wallets(invoices: Sequence[Invoice]) -> dict[int, int]:
    """By invoice the wallet that pays first: its tenant's own, where the plan at the period's end says so."""
    plans = Subscription.objects.filter(
        tenant__in={invoice.tenant_id for invoice in invoices}, plan__settles=Settles.WALLET_FIRST
    )
    spans: dict[tuple[int, str], list[tuple[datetime, datetime | None]]] = defaultdict(list)
    for tenant, currency, since, until in plans.values_list("tenant", "plan__currency", "since", "until"):
        spans[tenant, currency].append((since, until))
    selections = {
        invoice.pk: (invoice.tenant_id, invoice.currency)
        for invoice in invoices
        if any(
            since < invoice.period_end and (until is None or until >= invoice.period_end)
            for since, until in spans.get((invoice.tenant_id, invoice.currency), [])
        )
    }
    if not selections:
        return {}
    wallets = Wallet.objects.filter(
        tenant__in={tenant for tenant, _ in selections.values()}, scheme__scope=WalletScope.TENANT
    )
    by_unit = {(tenant, unit): pk for pk, tenant, unit in wallets.values_list("pk", "tenant", "unit")}
    return {invoice: by_unit[key] for invoice, key in selections.items() if key in by_unit}


def _draw(wallet: Wallet, invoice: Invoice, at: datetime) -> None:
    replay.settle(wallet=wallet, moment=at)
    grants = grants_of(wallet)
    ends = min((grant.expires_on for grant in grants if grant.expires_on), default=None)
    pieces_paid = pay(_parts(invoice, ends), grants, limit=max(0, wallet.balance - wallet.held))
    pieces = [Piece(piece.grant, -piece.amount) for piece in pieces_paid]
    paid = sum(piece.amount for piece in pieces_paid)
    post(
        wallet,
        Booking(pieces, EntrySide.INVOICE, at, memo=f"Paid on {invoice.number}", invoice=invoice.pk),
    )
    if paid != invoice.prepaid:
        invoice.prepaid = paid
        Invoice.objects.filter(pk=invoice.pk).update(prepaid=paid)


def _return(rows: Mapping[int, Wallet], note: Invoice, at: datetime) -> None:
    """What the note takes beyond what is still due comes back, up to what the wallet paid."""
    original = note.original
    if original is None:
        raise TypeError("a credit note has its invoice")
    (row,) = (rows[pk] for pk in _paid_by_invoices([original.pk]))
    if row.scheme.credits != CreditsGo.WALLET:
        return
    paid = int(original.payments.aggregate(sum=Sum("amount"))["sum"] or 0)
    credited = original.credit_notes.issued().aggregate(total=Sum("total"), prepaid=Sum("prepaid"))
    drawn_pieces = _drawn(original)
    drawn = original.prepaid + int(credited["prepaid"] or 0)
    due = original.total + int(credited["total"] or 0) + note.total - paid - drawn
    amount = min(drawn, -due, -note.total)  # what was overpaid before is no part of the note
    if amount <= 0:
        return
    pieces = give_back(amount, drawn_pieces)
    _give_again(row, Booking(pieces, EntrySide.INVOICE, at, f"Given back by {note.number}", invoice=note.pk))
    note.prepaid = -amount
    Invoice.objects.filter(pk=note.pk).update(prepaid=-amount)


def _give_again(wallet: Wallet, booking: Booking) -> None:
    """What comes back pays days that its grants could have paid for, and expires with them."""
    grants = WalletGrant.objects.filter(pk__in=[piece.grant for piece in booking.pieces])
    since = grants.aggregate(first=Min("usable_from"))["first"]
    replay.settle(wallet=wallet, moment=booking.at, change=Change(bookings=[booking], since=since))


def _drawn(invoice: Invoice) -> list[Piece]:
    """What the invoice took and nothing gave back, in the order in which it was taken."""
    notes = invoice.credit_notes.filter(state=InvoiceState.ISSUED).values_list("pk", flat=True)
    rows = WalletEntry.objects.filter(invoice__in=[invoice.pk, *notes], side=EntrySide.BALANCE)
    amounts: dict[int | None, int] = {}
    for grant, amount in rows.order_by("pk").values_list("grant", "amount"):
        amounts[grant] = amounts.get(grant, 0) - amount
    return [Piece(grant, amount) for grant, amount in amounts.items() if amount > 0]


def _paid_by(notes: Sequence[Invoice]) -> set[int]:
    return _paid_by_invoices([note.original_id for note in notes if note.original_id]) if notes else set()


def _paid_by_invoices(invoices: Iterable[int]) -> set[int]:
    rows = WalletEntry.objects.filter(invoice__in=list(invoices), side=EntrySide.INVOICE)
    return set(rows.values_list("wallet", flat=True))


@dataclass(frozen=True, slots=True)
class _Service:
    """What the lines of one service period come to, and who used it: another where the invoice's tenant pays for it."""

    user: int
    days: Sequence[date]
    net: int


def _parts(invoice: Invoice, ends: date | None) -> list[tuple[date, int]]:
    """What the invoice charges for each service day, in order; of one day alone, where no grant expires before.

    Its total is spread over its service periods by what their lines come to, and over the days of each by what
    their use costs at the price of its first unit, or evenly where there is none.
    """
    services = [service for service in _services(invoice) if service.net > 0]
    last = max((service.days[-1] for service in services), default=None)
    if last is None or ends is None or ends > last:
        return [(last or invoice.period_end.date(), invoice.total)]
    total = Money.from_minor(invoice.total, invoice.currency)
    costs = _costs(services, payer=invoice.tenant_id)
    by_day: dict[date, int] = defaultdict(int)
    for service, share in zip(services, split(total, [service.net for service in services]), strict=True):
        weights = _weights([costs[service.user, day] for day in service.days])
        for day, part in zip(service.days, split(share, weights), strict=True):
            by_day[day] += part.minor
    return sorted(by_day.items())


def _services(invoice: Invoice) -> Iterator[_Service]:
    columns = ("tenant", "start", "end", "timezone")
    lines = invoice.lines.values_list(*(f"service_period__{name}" for name in columns))
    for user, start, end, zone, net in lines.annotate(net=Sum("amount")).order_by("service_period__start"):
        first, last = start.astimezone(ZoneInfo(zone)).date(), last_day(end, zone=ZoneInfo(zone))
        days = [first + _DAY * place for place in range((last - first).days + 1)]
        yield _Service(user, days, int(net))


def _costs(services: Sequence[_Service], *, payer: int) -> Mapping[tuple[int, date], Fraction]:
    """By user and day what the use costs, in some unit, on the days on which `payer` paid for it. Two queries."""
    users = {service.user for service in services}
    first, last = min(service.days[0] for service in services), max(service.days[-1] for service in services)
    others: dict[int, list[Payer]] = defaultdict(list)
    for row in Payer.objects.filter(tenant__in=users):
        others[row.tenant_id].append(row)
    exact: dict[tuple[int, date], Fraction] = defaultdict(Fraction)
    rows = DayTotal.objects.filter(tenant__in=users, day__range=(first, last))
    for user, day, share_den, amount in rows.costs("tenant", "day"):
        paid = (row.payer_id for row in others[user] if row.since <= day and (row.until or date.max) > day)
        if next(paid, user) == payer:
            exact[user, day] += max(Fraction(amount) / share_den, Fraction(0))
    return exact


def _weights(costs: Sequence[Fraction]) -> list[int]:
    """The same in whole numbers; all alike where nothing was used."""
    common = lcm(*(cost.denominator for cost in costs))
    whole = [int(cost * common) for cost in costs]
    return whole if any(whole) else [1] * len(costs)


def _beginning(document: Invoice) -> datetime:
    if document.issued_on is None:
        raise TypeError("a document that is issued has its day")
    return midnight(document.issued_on, zone=ZoneInfo(document.timezone))
