"""A payout of the payment service, line by line down to payments and invoices, as a page and as CSV."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC
from zoneinfo import ZoneInfo

from django.http import Http404, HttpRequest, HttpResponse

from billing.documents.csv import Cell, rows_to_csv
from billing.models import GatewayMovement, GatewayPayout
from billing.queries import books as reading
from billing.rules import gateway_amounts
from billing.rules.money import Money
from portal.web import format as say
from portal.web.access_decorators import answer, operator_page
from portal.web.shapes import Badge, MovementRow, PayoutPage, Shell

UTC_ZONE = ZoneInfo("UTC")
LINES = 300  # that a page shows
PAYOUT_BADGES = {
    "paid": Badge(label="Arrived", tone="ok"),
    "in_transit": Badge(label="On its way", tone="run"),
    "pending": Badge(label="Pending", tone="wait"),
    "failed": Badge(label="Failed", tone="late"),
    "canceled": Badge(label="Canceled", tone="muted"),
}
WORDS = {
    "charge": "Payment",
    "payment": "Payment",
    "refund": "Refund",
    "payment_refund": "Refund",
    "refund_failure": "Refund that came back",
    "payment_failure_refund": "Payment that failed later",
    "stripe_fee": "Fee of Stripe",
}
COLUMNS = (
    "payout", "movement", "booked", "kind", "source", "payment", "tenant", "invoice", "paid", "paid_currency",
    "amount", "fee", "net", "currency",
)  # fmt: skip


@operator_page("reconciliation")
def payout(request: HttpRequest, shell: Shell, payout: str) -> HttpResponse:
    return answer(request, shell, _payout_page(_found(payout)), whole="operator/payout.html")


@operator_page("reconciliation")
def payout_csv(request: HttpRequest, shell: Shell, payout: str) -> HttpResponse:
    del request, shell
    gateway_payout = _found(payout)
    return HttpResponse(
        b"".join(rows_to_csv(COLUMNS, _cells(gateway_payout))),
        content_type="text/csv; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{gateway_payout.pk}.csv"'.replace("\n", "")},
    )


def _found(name: str) -> GatewayPayout:
    gateway_payout = GatewayPayout.objects.filter(pk=name.replace("\0", "")).first()
    if gateway_payout is None:
        raise Http404("no such payout")
    return gateway_payout


def badge_of(row: GatewayPayout) -> Badge:
    return PAYOUT_BADGES.get(row.state) or Badge(label=row.state, tone="muted")


def _money(amount: int, currency: str) -> Money:
    return gateway_amounts.as_money(amount, currency)


def _payout_page(row: GatewayPayout) -> PayoutPage:
    total = reading.total(row)
    rows = list(reading.lines(row)[: LINES + 1])
    note = ""
    if not row.itemised:
        note = "Stripe does not say what it is made of: never of payouts that were asked for by hand, of others later."
    elif total.net != row.amount:
        note = (
            f"Its lines come to {say.money(_money(total.net, row.currency))}: that is no sum of this payout."
        )
    elif total.untraced:
        lines = say.counted(total.untraced, "line")
        note = f"{lines} of it lead to no payment of ours: fees, or something else in the account."
    shown = tuple(_movement(each) for each in rows[:LINES])
    return PayoutPage(
        name=row.pk,
        badge=badge_of(row),
        amount=say.money(_money(row.amount, row.currency)),
        made=say.moment(row.made_at, UTC_ZONE),
        arrives=say.day(row.arrives_on),
        note=note,
        rows=shown,
        others=any(each.paid for each in shown),
        more=f"{say.whole(total.lines - LINES)} more lines: the CSV has all of them."
        if len(rows) > LINES
        else "",
        total_amount=say.money(_money(total.amount, row.currency)),
        total_fee=say.money(_money(total.fee, row.currency)),
        total_net=say.money(_money(total.net, row.currency)),
    )


def _movement(row: GatewayMovement) -> MovementRow:
    paid = row.attempt
    other = paid is not None and paid.currency != row.currency
    return MovementRow(
        name=row.pk,
        at=say.moment(row.made_at, UTC_ZONE),
        what=_what(row),
        source=row.source,
        tenant=paid.tenant.name if paid else ("somebody else’s" if row.foreign else ""),
        slug=paid.tenant.slug if paid else "",
        invoice=(paid.invoice.number or "") if paid and paid.invoice else "",
        paid=say.minor(paid.amount, paid.currency) if paid and other else "",
        amount=say.money(_money(row.amount, row.currency)),
        fee=say.money(_money(row.fee, row.currency)) if row.fee else "",
        net=say.money(_money(row.net, row.currency)),
    )


def _what(row: GatewayMovement) -> str:
    if row.source.startswith(("du_", "dp_")):
        return "Dispute" if row.amount < 0 else "Dispute that was won"
    return WORDS.get(row.kind) or row.kind.replace("_", " ").capitalize()


def _cells(gateway_payout: GatewayPayout) -> Iterator[Sequence[Cell]]:
    for row in reading.lines(gateway_payout).iterator():
        paid = row.attempt
        yield (
            gateway_payout.pk,
            row.pk,
            f"{row.made_at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}",
            row.kind,
            row.source,
            (paid.external_id or "") if paid else "",
            paid.tenant.slug if paid else "",
            (paid.invoice.number or "") if paid and paid.invoice else ("top-up" if paid else ""),
            Money.from_minor(paid.amount, paid.currency).text if paid else "",
            paid.currency if paid else "",
            *(_money(each, row.currency).rounded().text for each in (row.amount, row.fee, row.net)),
            row.currency,
        )
