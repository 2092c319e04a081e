"""A payout of the payment service, line by line down to payments and invoices, as a page and as CSV."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC

from django.http import Http404, HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from billing.documents.csv import Cell, rows_to_csv
from billing.models import GatewayMovement, GatewayPayout
from billing.queries import gateway_reconciliation as reading
from billing.queries.gateway_reconciliation import PayoutTotal
from billing.rules import gateway_amounts
from billing.rules.money import Money
from portal.web import format as say
from portal.web.access_decorators import answer, operator_page
from portal.web.badges import Badge
from portal.web.page_frame import PageFrame

LINES = 300  # that a page shows
PAYOUT_BADGES = {
    "paid": Badge(label=gettext_noop("Arrived"), tone="ok"),
    "in_transit": Badge(label=gettext_noop("In transit"), tone="run"),
    "pending": Badge(label=gettext_noop("Pending"), tone="wait"),
    "failed": Badge(label=gettext_noop("Failed"), tone="late"),
    "canceled": Badge(label=gettext_noop("Canceled"), tone="muted"),
}
KINDS = {
    "charge": gettext_noop("Payment"),
    "payment": gettext_noop("Payment"),
    "refund": gettext_noop("Refund"),
    "payment_refund": gettext_noop("Refund"),
    "refund_failure": gettext_noop("Failed refund"),
    "payment_failure_refund": gettext_noop("Payment that failed later"),
    "stripe_fee": gettext_noop("Stripe fee"),
}
COLUMNS = (
    "payout", "movement", "booked", "kind", "source", "payment", "tenant", "invoice", "paid", "paid_currency",
    "amount", "fee", "net", "currency",
)  # fmt: skip


@operator_page("reconciliation")
def payout(request: HttpRequest, frame: PageFrame, payout: str) -> HttpResponse:
    return answer(request, frame, _payout_page(_payout_named(payout)), whole="operator/payout.html")


@operator_page("reconciliation")
def payout_csv(request: HttpRequest, frame: PageFrame, payout: str) -> HttpResponse:
    del request, frame
    gateway_payout = _payout_named(payout)
    return HttpResponse(
        b"".join(rows_to_csv(COLUMNS, _cells(gateway_payout))),
        content_type="text/csv; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{gateway_payout.pk}.csv"'.replace("\n", "")},
    )


def _payout_named(name: str) -> GatewayPayout:
    gateway_payout = GatewayPayout.objects.filter(pk=name.replace("\0", "")).first()
    if gateway_payout is None:
        raise Http404("no such payout")
    return gateway_payout


def badge_of(row: GatewayPayout) -> Badge:
    return PAYOUT_BADGES.get(row.state) or Badge(label=row.state, tone="muted")


def _payout_page(row: GatewayPayout) -> dict[str, object]:
    total, rows = reading.total(row), list(reading.lines(row)[: LINES + 1])
    shown = rows[:LINES]
    return {
        "payout": row,
        "badge": badge_of(row),
        "note": _note(row, total),
        "rows": [(movement, _kind(movement)) for movement in shown],
        "other_currencies": any(line.attempt and line.attempt.currency != line.currency for line in shown),
        "more": total.lines - LINES if len(rows) > LINES else 0,
        "total": total,
    }


def _note(row: GatewayPayout, total: PayoutTotal) -> str:
    if not row.itemised:
        return _("Stripe never itemizes manual payouts, and automatic ones only after a while.")
    if total.net != row.amount:
        amount = say.money(gateway_amounts.as_money(total.net, row.currency))
        return _("The lines total {amount}, which is not the amount of this payout.").format(amount=amount)
    if total.untraced:
        lines = say.counted(total.untraced, "line")
        return _(
            "{lines} without a payment in ClusterTab: fees, or other activity of the Stripe account."
        ).format(lines=lines)
    return ""


def _kind(row: GatewayMovement) -> str:
    if row.source.startswith(("du_", "dp_")):
        return _("Dispute") if row.amount < 0 else _("Dispute won")
    return _(KINDS[row.kind]) if row.kind in KINDS else row.kind.replace("_", " ").capitalize()


def _cells(gateway_payout: GatewayPayout) -> Iterator[Sequence[Cell]]:
    for row in reading.lines(gateway_payout).iterator():
        paid = row.attempt
        yield (
            gateway_payout.pk,
            row.pk,
            f"{row.created_at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}",
            row.kind,
            row.source,
            (paid.external_id or "") if paid else "",
            paid.tenant.slug if paid else "",
            (paid.invoice.number or "") if paid and paid.invoice else ("top-up" if paid else ""),
            Money.from_minor(paid.amount, paid.currency).text if paid else "",
            paid.currency if paid else "",
            *(
                gateway_amounts.as_money(units, row.currency).rounded().text
                for units in (row.amount, row.fee, row.net)
            ),
            row.currency,
        )
