"""The close of a month: who is ready, what blocks whom, preview, approve, issue."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from babel.dates import format_date
from django.contrib import messages
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.urls import reverse

from billing.invoicing import approvals, close_runs
from billing.invoicing.approvals import ApprovalError
from billing.invoicing.close_results import Outcome
from billing.invoicing.close_runs import RunError, Tally
from billing.models import BillingPeriod, CloseKind, CloseResult, CloseRun, Decision, PendingApproval
from billing.rules.formatting import LOCALE
from billing.rules.money import Money
from billing.rules.period import parse_month, shifted
from portal.core.audit import acting_as
from portal.core.outbox import outbox
from portal.web import close_confirmation, close_schedule
from portal.web import format as say
from portal.web.access_decorators import answer, operator_page
from portal.web.shapes import (
    Badge,
    ClosePage,
    CloseRow,
    CloseTile,
    InTheWay,
    Option,
    PendingRow,
    Shell,
)

UTC_ZONE = ZoneInfo("UTC")
PAGE = 50  # tenants
PENDING_SHOWN = 20
MONTHS = 18  # that are offered
LINES = 3  # that differ most, of each tenant
DIGITS = (
    30  # of a number that is sent here: none that is kept has as many, so what is cut off is another number
)

READY = "ready"
SHOWN: dict[str, tuple[str, ...]] = {
    READY: (Outcome.ISSUED, Outcome.CORRECTED),
    "issued": (Outcome.ISSUED, Outcome.CORRECTED, Outcome.ALREADY),
    "stuck": (Outcome.BLOCKED, Outcome.FAILED),
    "pending": (Outcome.PENDING_APPROVAL,),
    "nothing": (Outcome.NOTHING, Outcome.CARRIED, Outcome.ALREADY),
    "without": (Outcome.NOTHING, Outcome.CARRIED),
}
"""By the name in an address, the outcomes that it shows."""

BADGES = {
    Outcome.ISSUED: Badge(label="Issued", tone="ok"),
    Outcome.CORRECTED: Badge(label="Corrected", tone="ok"),
    Outcome.ALREADY: Badge(label="Already issued", tone="muted"),
    Outcome.NOTHING: Badge(label="Nothing to bill", tone="muted"),
    Outcome.CARRIED: Badge(label="Carried forward", tone="muted"),
    Outcome.PENDING_APPROVAL: Badge(label="Waiting for approval", tone="wait"),
    Outcome.BLOCKED: Badge(label="Blocked", tone="late"),
    Outcome.FAILED: Badge(label="Failed", tone="late"),
}
DECIDED = {
    Decision.WAITING: Badge(label="Waiting for approval", tone="wait"),
    Decision.APPROVED: Badge(label="Approved", tone="ok"),
    Decision.REFUSED: Badge(label="Refused", tone="late"),
}
WAYS = {
    "not-over": ("The period has not ended", "Close it after its end, in each tenant’s own zone."),
    "earlier-open": ("An earlier month is open", "Close months in order: choose the earlier one first."),
    "earlier-pending-approval": (
        "An earlier month waits for approval",
        "Decide it above, and close that month first.",
    ),
    "pending": (
        "Waiting for approval",
        "Open the draft. Issuing the month lists it above, to approve or refuse.",
    ),
    "unpriced": (
        "Usage without a price",
        "Give the tenant a plan, or its plan a price, then preview again.",
    ),
    "incomplete": (
        "Usage may be missing",
        "Have the cluster read to the period’s end, or give a reason when you issue.",
    ),
    "no-seller": (
        "The seller is not entered",
        "Name, address and, in the EU, VAT id stand on every invoice.",
    ),
    "no-key": (
        "Documents cannot be signed",
        "Set CLUSTERTAB_SECRET_KEYS for all processes, and restart them.",
    ),
    "no-xrechnung": (
        "Missing for an XRechnung",
        "The sentence beside the tenant names it; without it a public buyer refuses the invoice.",
    ),
    "untaxed": ("How it is taxed is not known", "The sentence beside the tenant says what is missing."),
    "mixed-currencies": ("Two currencies in one period", "Move the change of plan to a period’s border."),
}

ENTRIES = {
    "no-seller": "admin:billing_seller_changelist",
    "no-xrechnung": "admin:tenants_tenant_changelist",
}
"""Where what is missing is entered."""


@operator_page("close", acts=True)
def close(request: HttpRequest, shell: Shell) -> HttpResponse:
    now = datetime.now(UTC).replace(microsecond=0)
    parameters = request.POST if request.method == "POST" else request.GET
    month = _month(parameters.get("month", ""), now)
    if request.method == "POST":
        if request.POST.get("act") == CloseKind.ISSUE and request.POST.get("confirmed") != "yes":
            return redirect(f"{reverse('operator_close')}{close_confirmation.address(month, _why(request))}")
        _act(request, month, now)
        return redirect(f"{reverse('operator_close')}?{urlencode({'month': month})}")
    return answer(
        request,
        shell,
        _page(month, request.GET, now),
        whole="operator/close.html",
        part="operator/_close.html",
    )


def _month(text: str, now: datetime) -> str:
    """The month that is asked for; last month, unless said."""
    if not text:
        return _other((now.year, now.month), -1)
    try:
        year, number = parse_month(text)
    except ValueError as error:
        raise Http404 from error
    if not 2000 <= year <= now.year + 1:
        raise Http404
    return f"{year:04d}-{number:02d}"


def _other(month: tuple[int, int], by: int) -> str:
    year, number = shifted(month, by)
    return f"{year:04d}-{number:02d}"


def _act(request: HttpRequest, month: str, now: datetime) -> None:
    act, by = request.POST.get("act", ""), str(request.user)
    why = _why(request)
    try:
        if act in CloseKind.values:
            _ask(CloseKind(act), month, by, why, now)
            messages.info(request, "Asked for: a worker begins in a moment.")
        elif act in {Decision.APPROVED.value, Decision.REFUSED.value}:
            row = _decide(request.POST, Decision(act), by, why, now)
            again = " Issue the month to send it." if row.state == Decision.APPROVED else ""
            messages.success(request, f"{row.tenant}, {approvals.format_total(row)}: {row.state}.{again}")
    except (RunError, ApprovalError) as refusal:
        messages.error(request, str(refusal))


def _why(request: HttpRequest) -> str:
    return request.POST.get("why", "").replace("\0", "").strip()[:500]


def _ask(kind: CloseKind, month: str, by: str, why: str, now: datetime) -> None:
    """Through the outbox: a worker takes it up although this process may die now."""
    with transaction.atomic():
        close_runs.request_run(month=month, kind=kind, by=by, moment=now, accept_incomplete=why)
        outbox.add("billing.tasks.closes_due")


def _decide(posted: QueryDict, decision: Decision, by: str, why: str, now: datetime) -> PendingApproval:
    period, total, lines = (posted.get(name, "") for name in ("period", "total", "lines"))
    if not (period.isdecimal() and lines.isdecimal() and total.removeprefix("-").isdecimal()):
        raise Http404
    chosen = BillingPeriod.objects.select_related("tenant").filter(pk=int(period[:18])).first()
    if chosen is None:
        raise Http404
    seen = int(total[:DIGITS]), int(lines[:DIGITS])
    with acting_as(by, why=why):
        return approvals.decide_approval(
            period=chosen, decision=decision, by=by, why=why, moment=now, seen=seen
        )


def _page(month: str, query: QueryDict, now: datetime) -> ClosePage:
    year, number = parse_month(month)
    run = close_runs.get_newest_run(month)
    busy = run is not None and run.ended_at is None
    show, code = query.get("show", ""), query.get("block", "")
    show, code = show if show in SHOWN else "", code if code in WAYS else ""
    after = query.get("after", "")
    place = int(after) if after.isdecimal() and len(after) < 19 else 0
    tallies = close_runs.count_outcomes(run) if run else []
    rows, more = (
        close_runs.list_results(run, outcomes=SHOWN.get(show, ()), code=code, after=place, limit=PAGE)
        if run
        else ([], 0)
    )
    pending, more_pending = _pending() if not busy else ((), "")
    filters = {"show": show, "block": code}
    asks = query.get("confirm") == "yes" and not busy
    return ClosePage(
        confirmation=close_confirmation.question(run, month_name(month), query.get("why", "")[:500])
        if asks
        else None,
        month=month,
        name=month_name(month),
        earlier=_href(_other((year, number), -1)),
        later=_href(_other((year, number), 1)) if month < f"{now:%Y-%m}" else "",
        months=_months(month, now),
        run=_said(run) if run else "",
        previewed=run is not None and run.kind == CloseKind.PREVIEW,
        busy=busy,
        progress=_progress(run) if run and busy else "",
        done=run.done if run else 0,
        total=run.total if run else 0,
        error=run.error if run else "",
        tiles=_tiles(month, run, tallies, show) if run else (),
        blocks=tuple(_way(month, code, count) for code, count in close_runs.count_blocks(run)) if run else (),
        pending=pending,
        more_pending=more_pending,
        rows=tuple(_row(row) for row in rows),
        shown=WAYS[code][0] if code else _TITLES.get(show, ""),
        everything=_href(month),
        more=_href(month, **filters, after=str(more)) if more else "",
        first=not place,
        href=_href(month, **filters, after=str(place or "")),
        refresh="every 2s" if busy else "",
        schedule=tuple(filter(None, (*close_schedule.coming(now, month), close_schedule.report_of(run)))),
    )


_TITLES = {
    READY: "Ready",
    "issued": "Issued",
    "stuck": "Blocked",
    "pending": "Waiting for approval",
    "nothing": "Skipped",
    "without": "No invoice",
}


def _href(month: str, **parameters: str) -> str:
    return "?" + urlencode({"month": month} | {name: value for name, value in parameters.items() if value})


def month_name(month: str) -> str:
    year, number = parse_month(month)
    return format_date(datetime(year, number, 1, tzinfo=UTC).date(), "MMMM y", locale=LOCALE)


def _months(chosen: str, now: datetime) -> tuple[Option, ...]:
    offered = [_other((now.year, now.month), -back) for back in range(MONTHS)]
    if chosen not in offered:
        offered.append(chosen)
    return tuple(Option(value=each, label=month_name(each), selected=each == chosen) for each in offered)


def _said(run: CloseRun) -> str:
    what = "Previewed" if run.kind == CloseKind.PREVIEW else "Issued"
    at = say.moment(run.ended_at or run.asked_at, UTC_ZONE)
    of = f" for {say.counted(run.total, 'tenant')}" if run.scheduled else ""
    why = f" Usage may be missing; accepted: {run.accept_incomplete}" if run.accept_incomplete else ""
    return f"{'Asked for' if run.ended_at is None else what} by {run.by}{of}, {at}.{why}"


def _progress(run: CloseRun) -> str:
    doing = "Previewing" if run.kind == CloseKind.PREVIEW else "Issuing"
    if run.begun_at is None:
        return f"{doing} {month_name(run.month)}: waiting for a worker."
    return f"{doing} {month_name(run.month)}: {say.whole(run.done)} of {say.counted(run.total, 'tenant')}."


def _tiles(month: str, run: CloseRun, tallies: Sequence[Tally], show: str) -> tuple[CloseTile, ...]:
    previewed = run.kind == CloseKind.PREVIEW
    groups = (
        [(READY, "Ready to issue", ""), ("stuck", "Blocked", "see the blockers below")]
        if previewed
        else [("issued", "Issued", ""), ("stuck", "Blocked", "issue again once mended")]
    )
    groups.append(("pending", "Waiting for approval", "beyond their bounds"))
    groups.append(("nothing", "Skipped", "already issued, or no charges") if previewed else
                ("without", "No invoice", "no charges, or carried forward"))  # fmt: skip
    tiles = []
    for name, label, note in groups:
        own = [tally for tally in tallies if tally.outcome in SHOWN[name]]
        sums = [
            Money.from_minor(tally.total, tally.currency) for tally in own if tally.currency and tally.total
        ]
        summed = say.sums(_summed(sums)) if sums and name not in {"stuck", "nothing", "without"} else note
        tiles.append(
            CloseTile(
                label=label,
                value=say.whole(sum(tally.tenants for tally in own)),
                note=summed or "none",
                href=_href(month, show=name),
                current=show == name,
            )
        )
    return tuple(tiles)


def _summed(amounts: Sequence[Money]) -> list[Money]:
    totals: dict[str, Money] = {}
    for amount in amounts:
        totals[amount.currency] = totals.get(amount.currency, Money.zero(amount.currency)) + amount
    return list(totals.values())


def _way(month: str, code: str, tenants: int) -> InTheWay:
    title, remedy = WAYS.get(code, (code, ""))
    return InTheWay(
        title=title,
        remedy=remedy,
        tenants=say.counted(tenants, "tenant"),
        href=_href(month, block=code),
        entry=reverse(ENTRIES[code]) if code in ENTRIES else "",
    )


def _pending() -> tuple[tuple[PendingRow, ...], str]:
    """What waits or was decided and is not issued, of every month; and how many more there are."""
    waiting = PendingApproval.objects.filter(period__closed_at__isnull=True).select_related(
        "tenant", "period"
    )
    rows = list(waiting.order_by("-state", "period__start", "tenant__slug")[: PENDING_SHOWN + 1])
    more = f"{waiting.count() - PENDING_SHOWN} more" if len(rows) > PENDING_SHOWN else ""
    return tuple(_pending_row(row) for row in rows[:PENDING_SHOWN]), more


def _pending_row(row: PendingApproval) -> PendingRow:
    decided = ""
    if row.decided_at is not None:
        decided = f"{row.by}, {say.moment(row.decided_at, UTC_ZONE)}: {row.why}"
    return PendingRow(
        period=row.period_id,
        slug=row.tenant.slug,
        tenant=row.tenant.name,
        month=say.period(row.period),
        total=say.minor(row.total, row.currency),
        lines=say.whole(row.lines),
        reason=row.reason,
        since=say.moment(row.since, UTC_ZONE),
        badge=DECIDED[Decision(row.state)],
        decision=decided,
        seen=str(row.total),
        seen_lines=str(row.lines),
        draft=_drafts(f"{row.period.start.astimezone(ZoneInfo(row.period.timezone)):%Y-%m}", row.tenant.slug),
    )


def _row(row: CloseResult) -> CloseRow:
    report: dict[str, Any] = row.told
    previewed = row.number == "" and row.outcome == Outcome.ISSUED
    badge = Badge(label="Ready", tone="ok") if previewed else BADGES[Outcome(row.outcome)]
    blocks = [block["sentence"] for block in report["blocks"]]
    sentences = blocks or ([report["reason"]] if report["reason"] else [])
    change = report["change"]
    return CloseRow(
        slug=row.tenant.slug,
        tenant=row.tenant.name,
        badge=badge,
        total=say.minor(row.total, row.currency) if row.total is not None else "",
        number=row.number,
        change=_change(change) if change else "",
        lines=tuple(_line(line, change["currency"]) for line in change["lines"][:LINES]) if change else (),
        sentences=(*sentences, *([report["note"]] if report["note"] else [])),
        draft=_draft(row),
    )


def _draft(row: CloseResult) -> str:
    """Where what a preview found, or what waits for approval, is looked at as it will be."""
    is_open = row.run.kind == CloseKind.PREVIEW and row.outcome in {Outcome.ISSUED, Outcome.CORRECTED}
    if not is_open and row.outcome != Outcome.PENDING_APPROVAL:
        return ""
    return _drafts(row.run.month, row.tenant.slug)


def _drafts(month: str, slug: str) -> str:
    return reverse("operator_drafts", args=[month, slug])


def _change(change: dict[str, Any]) -> str:
    difference = Money.of(Fraction(change["difference"]), change["currency"])
    sign = "+" if difference.amount > 0 else ""
    return f"{sign}{say.money(difference)}" + (f" ({change['percent']} %)" if change["percent"] else "")


def _line(line: dict[str, Any], currency: str) -> str:
    name = ", ".join(part for part in (line["project"], line["description"]) if part)
    before, now = (say.money(Money.of(Fraction(line[key]), currency)) for key in ("before", "now"))
    return f"{name}: {before} → {now}"
