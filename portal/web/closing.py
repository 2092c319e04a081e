"""The month-end close: which tenants are ready, what blocks the others, preview, approve, issue."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from django.contrib import messages
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _

from billing.invoicing import approvals, close_runs
from billing.invoicing.approvals import ApprovalError
from billing.invoicing.close_results import Outcome
from billing.invoicing.close_runs import RunError, Tally
from billing.models import BillingPeriod, CloseKind, CloseResult, CloseRun, Decision, PendingApproval
from billing.rules.money import Money
from billing.rules.period import parse_month, shifted
from portal.core.audit import acting_as
from portal.core.outbox import outbox
from portal.core.pagination import Page
from portal.core.tenants.access import Right
from portal.sentences import sentence
from portal.web import close_confirmation, close_schedule
from portal.web import format as say
from portal.web.access_decorators import answer, operator_page
from portal.web.badges import Badge
from portal.web.close_labels import BADGES, BLOCKERS, DECISIONS, ENTRIES, READY, READY_BADGE, SHOWN, TITLES
from portal.web.form_input import Option
from portal.web.page_frame import PageFrame
from portal.web.templatetags.clustertab import moment

PAGE = 50  # tenants
PENDING_SHOWN = 20
MONTHS = 18  # that are offered
LINES = 3  # that differ most, of each tenant
DIGITS = 30  # of a number that a form sends: more than any figure here has


@operator_page("close", acts=Right.CLOSES)
def close(request: HttpRequest, frame: PageFrame) -> HttpResponse:
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
        frame,
        _page(month, request.GET, now),
        whole="operator/close.html",
        part="operator/_close.html",
    )


def _month(text: str, now: datetime) -> str:
    """The month in the address; last month without one."""
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
            _request(CloseKind(act), month, by, why, now)
            messages.info(request, _("Requested. It starts shortly."))
        elif act in {Decision.APPROVED.value, Decision.REFUSED.value}:
            row = _decide(request.POST, Decision(act), by, why, now)
            text = _("{tenant}, {amount}: {decision}.").format(
                tenant=row.tenant, amount=approvals.format_total(row), decision=row.state
            )
            next_step = _(" Issue the month to send it.") if row.state == Decision.APPROVED else ""
            messages.success(request, text + next_step)
    except (RunError, ApprovalError) as refusal:
        messages.error(request, sentence(refusal))


def _why(request: HttpRequest) -> str:
    return request.POST.get("why", "").replace("\0", "").strip()[:500]


def _request(kind: CloseKind, month: str, by: str, why: str, now: datetime) -> None:
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
            period=chosen, decision=decision, by=by, reason=why, moment=now, seen=seen
        )


def _page(month: str, query: QueryDict, now: datetime) -> dict[str, object]:
    """`refresh` asks for the page again while a worker is at it."""
    year, number = parse_month(month)
    run = close_runs.get_newest_run(month)
    busy = run is not None and run.ended_at is None
    show, code = query.get("show", ""), query.get("block", "")
    show, code = show if show in SHOWN else "", code if code in BLOCKERS else ""
    after = query.get("after", "")
    results = (
        close_runs.list_results(run, outcomes=SHOWN.get(show, ()), code=code, after=after, size=PAGE)
        if run
        else Page([], "", is_first=True)
    )
    pending, more_pending = _pending() if not busy else ([], 0)
    filters = {"show": show, "block": code}
    confirms = query.get("confirm") == "yes" and not busy
    return {
        "confirmation": close_confirmation.question(run, month_name(month)) if confirms else "",
        "why": query.get("why", "")[:500],
        "month": month,
        "name": month_name(month),
        "earlier": _href(_other((year, number), -1)),
        "later": _href(_other((year, number), 1)) if month < f"{now:%Y-%m}" else "",
        "months": _months(month, now),
        "run": run,
        "run_text": _run_text(run) if run else "",
        "previewed": run is not None and run.kind == CloseKind.PREVIEW,
        "busy": busy,
        "progress": _progress(run) if run and busy else "",
        "tiles": _tiles(month, run, close_runs.count_outcomes(run), show) if run else [],
        "blockers": [
            (*BLOCKERS.get(code, (code, "")), ENTRIES.get(code, ""), tenants, _href(month, block=code))
            for code, tenants in (close_runs.count_blocks(run) if run else [])
        ],
        "pending": pending,
        "more_pending": more_pending,
        "rows": [_row(row) for row in results.rows],
        "shown": BLOCKERS[code][0] if code else TITLES.get(show, ""),
        "everything": _href(month),
        "more": _href(month, **filters, after=results.next) if results.next else "",
        "first": results.is_first,
        "href": _href(month, **filters, after="" if results.is_first else after),
        "refresh": "every 2s" if busy else "",
        "schedule": [
            text
            for text in (*close_schedule.upcoming_text(now, month), close_schedule.report_text(run))
            if text
        ],
    }


def _href(month: str, **parameters: str) -> str:
    return "?" + urlencode({"month": month} | {name: value for name, value in parameters.items() if value})


def month_name(month: str) -> str:
    year, number = parse_month(month)
    return say.month_name(datetime(year, number, 1, tzinfo=UTC).date())


def _months(chosen: str, now: datetime) -> tuple[Option, ...]:
    offered = [_other((now.year, now.month), -back) for back in range(MONTHS)]
    if chosen not in offered:
        offered.append(chosen)
    return tuple(Option(value=month, label=month_name(month), selected=month == chosen) for month in offered)


def _run_text(run: CloseRun) -> str:
    """`Previewed by op@cluster.example, 20 Apr 2026, 08:00.`"""
    done = _("Previewed") if run.kind == CloseKind.PREVIEW else _("Issued")
    of = _(" for {tenants}").format(tenants=say.counted(run.total, "tenant")) if run.scheduled else ""
    why = (
        _(" Incomplete usage accepted: {why}").format(why=run.accept_incomplete)
        if run.accept_incomplete
        else ""
    )
    return _("{done} by {by}{of}, {at}.{why}").format(
        done=_("Requested") if run.ended_at is None else done,
        by=run.requested_by,
        of=of,
        at=moment(run.ended_at or run.requested_at),
        why=why,
    )


def _progress(run: CloseRun) -> str:
    doing = _("Previewing {month}") if run.kind == CloseKind.PREVIEW else _("Issuing {month}")
    waits = run.started_at is None
    text = _("{doing}: waiting for a worker.") if waits else _("{doing}: {done} of {tenants}.")
    return text.format(
        doing=doing.format(month=month_name(run.month)),
        done=say.whole(run.done),
        tenants=say.counted(run.total, "tenant"),
    )


def _tiles(month: str, run: CloseRun, tallies: Sequence[Tally], show: str) -> list[dict[str, object]]:
    if run.kind == CloseKind.PREVIEW:
        groups = [
            (READY, _("Ready to issue"), ""),
            ("stuck", _("Blocked"), _("see the blockers below")),
            ("pending", _("Held for approval"), _("over an approval limit")),
            ("nothing", _("Skipped"), _("already issued, or no charges")),
        ]
    else:
        groups = [
            ("issued", _("Issued"), ""),
            ("stuck", _("Blocked"), _("fix, then issue again")),
            ("pending", _("Held for approval"), _("over an approval limit")),
            ("without", _("No invoice"), _("no charges, or carried forward")),
        ]
    tiles = []
    for name, label, note in groups:
        own = [tally for tally in tallies if tally.outcome in SHOWN[name]]
        sums = close_confirmation.sums(own) if name in {READY, "issued", "pending"} else []
        tiles.append(
            {
                "label": label,
                "count": sum(tally.tenants for tally in own),
                "note": say.sums(sums) if sums else note or _("none"),
                "href": _href(month, show=name),
                "current": show == name,
            }
        )
    return tiles


def _pending() -> tuple[list[tuple[PendingApproval, Badge, str]], int]:
    """What waits or was decided and is not issued, of every month, with its draft; and how many more there are."""
    waiting = PendingApproval.objects.filter(period__closed_at__isnull=True).select_related(
        "tenant", "period"
    )
    rows = list(waiting.order_by("-state", "period__start", "tenant__slug")[: PENDING_SHOWN + 1])
    more = waiting.count() - PENDING_SHOWN if len(rows) > PENDING_SHOWN else 0
    return [
        (row, DECISIONS[Decision(row.state)], _drafts(_month_of(row.period), row.tenant.slug))
        for row in rows[:PENDING_SHOWN]
    ], more


def _month_of(period: BillingPeriod) -> str:
    return f"{period.start.astimezone(ZoneInfo(period.timezone)):%Y-%m}"


def _row(row: CloseResult) -> dict[str, object]:
    report: dict[str, Any] = row.details
    change = report["change"]
    blockers = [block["sentence"] for block in report["blocks"]]
    return {
        "result": row,
        "badge": READY_BADGE
        if row.number == "" and row.outcome == Outcome.ISSUED
        else BADGES[Outcome(row.outcome)],
        "sentences": [text for text in (*(blockers or [report["reason"]]), report["note"]) if text],
        "lines": [_line(line, change["currency"]) for line in change["lines"][:LINES]] if change else [],
        "change": _change(change) if change else "",
        "draft": _draft(row),
    }


def _draft(row: CloseResult) -> str:
    """The address of its draft, while it is previewed or held for approval."""
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
