"""The operator's page of reconciliation: Stripe compared with ClusterTab, and the payouts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode

from django.contrib import messages
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from billing.models import Difference, DifferenceKind, Reconciliation
from billing.payments import gateway_access
from billing.payments.gateway_access import CollectionError
from billing.queries import gateway_reconciliation as reading
from billing.reconciliation import reconciliation_run
from billing.rules import gateway_amounts
from portal.core.audit import acting_as
from portal.core.outbox import outbox
from portal.core.tenants.access import Right
from portal.sentences import sentence
from portal.web import format as say
from portal.web.access_decorators import answer, operator_page
from portal.web.badges import Badge
from portal.web.page_frame import PageFrame
from portal.web.payouts import badge_of
from portal.web.templatetags.clustertab import ago
from portal.web.tiles import Tile

PAGE, PAYOUTS, RUNS = 30, 12, 8
LATE = timedelta(hours=36)  # without a run that compared anything
MEANS: dict[str, tuple[str, str]] = {
    DifferenceKind.MISSING_HERE: (
        gettext_noop("Stripe has a payment that belongs to nothing in ClusterTab."),
        gettext_noop("Refund it at Stripe, or record it manually. Its tenant is not charged until then."),
    ),
    DifferenceKind.MISSING_THERE: (
        gettext_noop("ClusterTab has it, and Stripe does not."),
        gettext_noop("Check the Stripe account and its mode (live or test), then ask Stripe."),
    ),
    DifferenceKind.AMOUNT: (
        gettext_noop("The amounts differ."),
        gettext_noop("Find out who changed it, then correct ClusterTab with a payment or a credit note."),
    ),
    DifferenceKind.CURRENCY: (
        gettext_noop("The currencies differ."),
        gettext_noop("Find out who changed it, then correct ClusterTab with a payment or a credit note."),
    ),
    DifferenceKind.STATUS: (
        gettext_noop("It is paid on one side only."),
        gettext_noop("The next collection run copies Stripe’s status. If the difference stays, ask Stripe."),
    ),
    DifferenceKind.PAID_TWICE: (
        gettext_noop("The invoice is overpaid."),
        gettext_noop("Refund one payment at Stripe, or keep the rest as credit."),
    ),
    DifferenceKind.REFUND_WITHOUT_NOTE: (
        gettext_noop("A refund at Stripe has no credit note, so its amount is due again."),
        gettext_noop("Issue a credit note, or keep the balance open at the refund in the administration."),
    ),
    DifferenceKind.DISPUTE_UNKNOWN: (
        gettext_noop("Stripe has a dispute that ClusterTab does not."),
        gettext_noop("The next collection run imports it. Respond at Stripe before its deadline."),
    ),
    DifferenceKind.FEE: (
        gettext_noop("Stripe charged another fee than it reported."),
        gettext_noop("See the payment’s balance transaction at Stripe."),
    ),
    DifferenceKind.FEE_UNKNOWN: (
        gettext_noop("Stripe has reported no fee for the payment in three days."),
        gettext_noop("See the payment’s balance transaction at Stripe."),
    ),
    DifferenceKind.PAYOUT_SUM: (
        gettext_noop("The payout is not the sum of its lines."),
        gettext_noop("Compare its lines with Stripe’s, then ask Stripe."),
    ),
    DifferenceKind.MOVEMENT_UNKNOWN: (
        gettext_noop("A balance transaction at Stripe has no payment, refund or dispute."),
        gettext_noop("Look it up at Stripe, and note what it is."),
    ),
}
"""By kind of difference what it means, and what to do."""


@operator_page("reconciliation", acts=Right.PAYMENTS)
def reconciliation(request: HttpRequest, frame: PageFrame) -> HttpResponse:
    now = datetime.now(UTC)
    if request.method == "POST":
        _act(request, now)
        return redirect("operator_reconciliation")
    return answer(request, frame, _page(request.GET, now), whole="operator/reconciliation.html")


def _act(request: HttpRequest, now: datetime) -> None:
    by = str(request.user)
    if request.POST.get("act") == "run":
        with transaction.atomic():
            outbox.add("billing.tasks.request_reconciliation", by=by)
        messages.info(request, _("Comparison requested. It starts shortly."))
        return
    key, text = request.POST.get("difference", ""), request.POST.get("note", "").replace("\0", "")
    row = Difference.objects.filter(pk=int(key)).first() if key.isdecimal() and len(key) < 19 else None
    if row is None:
        raise Http404("no such difference")
    try:
        with acting_as(by):
            reconciliation_run.note(difference=row, text=text[:2000], by=by, moment=now)
    except CollectionError as refusal:
        messages.error(request, sentence(refusal))
    else:
        messages.success(request, _("Note on {name} saved.").format(name=row.object_id))


def _page(query: QueryDict, now: datetime) -> dict[str, object]:
    resolved = query.get("state") == "resolved"
    differences = reading.differences(resolved=resolved, after=query.get("before", ""), size=PAGE)
    payouts, more_payouts = reading.payouts(after=query.get("payouts", ""), size=PAYOUTS)
    state = {"state": "resolved"} if resolved else {}
    return {
        "ready": gateway_access.is_configured(),
        "sandbox": gateway_access.is_sandbox(),
        "tiles": _tiles(now),
        "resolved": resolved,
        "rows": [(row, *MEANS[row.kind]) for row in differences.rows],
        "older": "?" + urlencode(state | {"before": differences.next}) if differences.next else "",
        "payouts": [(row, badge_of(row), lines) for row, lines in payouts],
        "older_payouts": "?" + urlencode(state | {"payouts": more_payouts}) if more_payouts else "",
        "runs": [(row, _read(row), _badge(row)) for row in reading.runs(RUNS)],
    }


def _tiles(now: datetime) -> list[Tile]:
    kinds, last = reading.open_by_kind(), reading.last_good()
    count = say.whole(sum(kinds.values()))
    if len(kinds) > 1:
        note = _("of {count} kinds").format(count=len(kinds))
    else:
        note = "".join(DifferenceKind(kind).label for kind in kinds)
    label, compared = _("Differences"), _("Last compared")
    if last is None:
        return [
            Tile(label=label, value=count if kinds else say.NOTHING, note=note or _("not compared yet")),
            Tile(label=compared, value=_("never"), note=_("runs each night after 02:00 UTC")),
        ]
    late = now - last.began_at > LATE
    since = _("since {day}").format(day=say.day(last.since.date()))
    fees = _("after {fees} of fees").format(fees=_sums(last, "fees"))
    return [
        Tile(label=label, value=count, note=note or _("Stripe and ClusterTab agree")),
        Tile(
            label=compared,
            value=ago(last.began_at, now),
            note=_("late: it runs each night") if late else since,
        ),
        Tile(label=_("Charged"), value=_sums(last, "charged"), note=_("at Stripe, in that window")),
        Tile(label=_("Paid out"), value=_sums(last, "paid_out"), note=fees),
    ]


def _sums(run: Reconciliation, name: str) -> str:
    return say.sums(
        gateway_amounts.as_money(amounts[name], currency)
        for currency, amounts in run.sums.items()
        if amounts.get(name)
    )


def _badge(row: Reconciliation) -> Badge:
    if row.ended_at is None:
        return Badge(label=_("Running"), tone="run")
    if row.error:
        return Badge(label=_("Failed"), tone="late")
    if row.counts["found"]:
        return Badge(label=say.counted(row.counts["found"], "difference"), tone="wait")
    return Badge(label=_("No differences"), tone="ok")


def _read(row: Reconciliation) -> str:
    """`4 charges, 1 payout; 2 adopted`"""
    counts = [(row.counts.get(name, 0), name) for name in ("charges", "refunds", "disputes", "payouts")]
    read = ", ".join(say.counted(number, name.removesuffix("s")) for number, name in counts if number)
    adopted = row.counts.get("adopted", 0)
    return (read or _("nothing yet")) + (f"; {adopted} adopted" if adopted else "")
