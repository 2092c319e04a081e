"""The operator's page of reconciliation: what differs between Stripe's books and ours, and where payouts come from."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from django.contrib import messages
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect

from billing.models import Difference, DifferenceKind, GatewayPayout, Reconciliation
from billing.payments import gateway_access
from billing.payments.gateway_access import CollectionError
from billing.queries import books as reading
from billing.reconciliation import reconciliation_run
from billing.rules import gateway_amounts
from portal.core.audit import acting_as
from portal.core.outbox import outbox
from portal.web import format as say
from portal.web.access_decorators import answer, operator_page
from portal.web.payouts import badge_of
from portal.web.shapes import (
    Badge,
    BooksPage,
    DifferenceRow,
    Option,
    PayoutRow,
    RunRow,
    Shell,
    Tile,
)

UTC_ZONE = ZoneInfo("UTC")
PAGE, PAYOUTS, RUNS = 30, 12, 8
LATE = timedelta(hours=36)  # without a run that compared anything
MEANS: dict[str, tuple[str, str]] = {
    DifferenceKind.MISSING_HERE: (
        "Stripe has money of ours that belongs to nothing here.",
        "Give it back at Stripe, or record it by hand. Its tenant is not charged meanwhile.",
    ),
    DifferenceKind.MISSING_THERE: (
        "We have it, and Stripe does not know it.",
        "Is it the right account, and the right mode? Then ask Stripe.",
    ),
    DifferenceKind.AMOUNT: (
        "Both have it, over different amounts.",
        "Find out who changed it, and correct ours by a payment or a credit note.",
    ),
    DifferenceKind.CURRENCY: (
        "Both have it, in different currencies.",
        "Find out who changed it, and correct ours by a payment or a credit note.",
    ),
    DifferenceKind.STATUS: (
        "One side says that it is paid, the other does not.",
        "The next round of collecting takes over what Stripe says. If it stays, ask Stripe.",
    ),
    DifferenceKind.PAID_TWICE: (
        "The invoice has more payments than it asks for.",
        "Give one back at Stripe, or leave the rest as credit.",
    ),
    DifferenceKind.REFUND_WITHOUT_NOTE: (
        "Money was given back at Stripe, and is owed again as long as no credit note says why.",
        "Write the credit note, or say at the refund in the administration that it stays owed.",
    ),
    DifferenceKind.DISPUTE_UNKNOWN: (
        "A payer took the payment up with the bank, and we do not know of it.",
        "The next round of collecting takes it in. Answer it at Stripe in time.",
    ),
    DifferenceKind.FEE: (
        "Stripe kept another fee than we were told.",
        "Look at the payment’s balance transaction at Stripe.",
    ),
    DifferenceKind.FEE_UNKNOWN: (
        "After three days it is not told what the payment cost.",
        "Look at the payment’s balance transaction at Stripe.",
    ),
    DifferenceKind.PAYOUT_SUM: (
        "The payout is not the sum of what it is made of.",
        "Compare its lines with Stripe’s, and ask Stripe.",
    ),
    DifferenceKind.MOVEMENT_UNKNOWN: (
        "Money moved at Stripe, and no payment, refund or dispute says why.",
        "Look it up at Stripe, and note what it is.",
    ),
}


@operator_page("reconciliation", acts=True)
def reconciliation(request: HttpRequest, shell: Shell) -> HttpResponse:
    now = datetime.now(UTC)
    if request.method == "POST":
        _act(request, now)
        return redirect("operator_reconciliation")
    return answer(request, shell, _page(request.GET, now), whole="operator/reconciliation.html")


def _act(request: HttpRequest, now: datetime) -> None:
    by = str(request.user)
    if request.POST.get("act") == "run":
        with transaction.atomic():
            outbox.add("billing.tasks.request_reconciliation", by=by)
        messages.info(request, "Asked for: a worker compares the books in a moment.")
        return
    key, text = request.POST.get("difference", ""), request.POST.get("note", "").replace("\0", "")
    row = Difference.objects.filter(pk=int(key)).first() if key.isdecimal() and len(key) < 19 else None
    if row is None:
        raise Http404("no such difference")
    try:
        with acting_as(by):
            reconciliation_run.note(difference=row, text=text[:2000], by=by, moment=now)
    except CollectionError as refusal:
        messages.error(request, str(refusal))
    else:
        messages.success(request, f"Noted of {row.object_id}.")


def _page(query: QueryDict, now: datetime) -> BooksPage:
    resolved = query.get("state") == "resolved"
    before, payouts_before = query.get("before", ""), query.get("payouts", "").replace("\0", "")
    after = int(before) if before.isdecimal() and len(before) < 19 else None
    rows, more = reading.differences(resolved=resolved, before=after, limit=PAGE)
    payouts, more_payouts = reading.payouts(before=payouts_before, limit=PAYOUTS)
    state = {"state": "resolved"} if resolved else {}
    return BooksPage(
        ready=gateway_access.is_configured(),
        sandbox=gateway_access.is_sandbox(),
        tiles=_tiles(now),
        state=(
            Option(value="", label="Open", selected=not resolved),
            Option(value="resolved", label="Resolved", selected=resolved),
        ),
        resolved=resolved,
        rows=tuple(_difference(row) for row in rows),
        older="?" + urlencode(state | {"before": more}) if more else "",
        payouts=tuple(_payout(row, count) for row, count in payouts),
        older_payouts="?" + urlencode(state | {"payouts": more_payouts}) if more_payouts else "",
        runs=tuple(_run(row) for row in reading.runs(RUNS)),
    )


def _tiles(now: datetime) -> tuple[Tile, ...]:
    kinds, last = reading.open_by_kind(), reading.last_good()
    differ = sum(kinds.values())
    what = (
        f"of {len(kinds)} kinds" if len(kinds) > 1 else "".join(DifferenceKind(kind).label for kind in kinds)
    )
    if last is None:
        value, agree = (say.whole(differ) if differ else say.NOTHING), "nothing was compared yet"
    else:
        value, agree = say.whole(differ), "both books agree"
    tiles = [
        Tile(
            label="Differences",
            value=value,
            note=what or agree,
        )
    ]
    if last is None:
        return (*tiles, Tile(label="Last compared", value="never", note="each night after 02:00 UTC"))
    late = now - last.began_at > LATE
    tiles.append(
        Tile(
            label="Last compared",
            value=f"{say.age(last.began_at, now=now)} ago",
            note="late: it runs each night" if late else f"since {say.day(last.since.date())}",
        )
    )
    for label, name, note in (
        ("Charged", "charged", "at Stripe, in that window"),
        ("Paid out", "paid_out", f"after {_sums(last, 'fees')} of fees"),
    ):
        tiles.append(Tile(label=label, value=_sums(last, name), note=note))
    return tuple(tiles)


def _sums(run: Reconciliation, name: str) -> str:
    return say.sums(
        gateway_amounts.as_money(amounts[name], currency)
        for currency, amounts in run.sums.items()
        if amounts.get(name)
    )


def _difference(row: Difference) -> DifferenceRow:
    means, remedy = MEANS[row.kind]
    noted = f"{row.noted_by}, {say.moment(row.noted_at, UTC_ZONE)}" if row.noted_at else ""
    return DifferenceRow(
        pk=row.pk,
        title=row.get_kind_display(),
        object_id=row.object_id,
        tenant=row.tenant.name if row.tenant else "",
        slug=row.tenant.slug if row.tenant else "",
        invoice=(row.invoice.number or "") if row.invoice else "",
        ours=row.ours,
        theirs=row.theirs,
        means=means,
        remedy=remedy,
        first=say.moment(row.first_seen, UTC_ZONE),
        last=say.moment(row.last_seen, UTC_ZONE),
        resolved=say.moment(row.resolved_at, UTC_ZONE) if row.resolved_at else "",
        note=row.note,
        noted=noted,
    )


def _payout(row: GatewayPayout, lines: int) -> PayoutRow:
    return PayoutRow(
        name=row.pk,
        made=say.day(row.made_at.date()),
        arrives=say.day(row.arrives_on),
        badge=badge_of(row),
        lines=say.counted(lines, "line") if row.itemised else "not itemised",
        amount=say.money(gateway_amounts.as_money(row.amount, row.currency)),
    )


def _run(row: Reconciliation) -> RunRow:
    if row.ended_at is None:
        badge = Badge(label="Begun", tone="run")
    elif row.error:
        badge = Badge(label="Failed", tone="late")
    elif row.counts["found"]:
        badge = Badge(label=say.counted(row.counts["found"], "difference"), tone="wait")
    else:
        badge = Badge(label="Agree", tone="ok")
    counts = [(row.counts.get(name, 0), name) for name in ("charges", "refunds", "disputes", "payouts")]
    read = ", ".join(say.counted(number, name.removesuffix("s")) for number, name in counts if number)
    adopted = row.counts.get("adopted", 0)
    return RunRow(
        began=say.moment(row.began_at, UTC_ZONE),
        window=f"{say.day(row.since.date())} – {say.day(row.until.date())}",
        by=row.asked_by,
        read=(read or "nothing yet") + (f"; {adopted} adopted" if adopted else ""),
        badge=badge,
        error=row.error,
    )
