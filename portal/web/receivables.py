"""Overdue invoices, the next dunning step of each, and what needs an operator's decision."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from django.conf import settings
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from billing.dunning import overdue_invoices, upcoming_steps
from billing.dunning.overdue_invoices import OverdueInvoice
from billing.models import DunningPause, Invoice, InvoiceState
from billing.payments import refunds_due
from billing.payments.gateway_access import CollectionError
from billing.queries import receivable_totals, review_items
from billing.queries.receivable_totals import ReceivableTotal
from billing.receivables import pauses
from billing.receivables.pauses import PauseError
from billing.receivables.settlement import PaymentError
from billing.rules.dunning_defaults import Mark, Policy, Step
from portal.core.audit import acting_as
from portal.core.tenants.access import Right
from portal.core.tenants.models import Tenant
from portal.excerpt import quoted
from portal.sentences import sentence
from portal.web import format as say
from portal.web.access_decorators import answer, operator_page
from portal.web.badges import Badge
from portal.web.page_frame import PageFrame
from portal.web.recent_proof import require_recent_proof
from portal.web.tiles import Tile

PAGE = 50
STEPS = {
    Step.PAST_DUE: gettext_noop("Past due"),
    Step.ANNOUNCE: gettext_noop("Suspension announced"),
    Step.SUSPEND: gettext_noop("Suspension"),
    Step.WRITE_OFF: gettext_noop("Write-off proposed"),
}


@dataclass(frozen=True, kw_only=True)
class OverdueRow:
    late: OverdueInvoice
    badge: Badge
    note: str  # why no step follows, "" where one may
    next: str  # "Reminder 2", "" where no step is left
    on: date | None  # of the next step
    paused: bool  # this invoice can be resumed
    all_paused: bool  # and so can all of the tenant's


@operator_page("receivables", acts=Right.PAYMENTS)
def receivables(request: HttpRequest, frame: PageFrame) -> HttpResponse:
    now = datetime.now(UTC).replace(microsecond=0)
    if request.method == "POST":
        _act(request, now)
        return redirect(f"{reverse('operator_receivables')}{_back(request.POST.get('before', ''))}")
    page = _page(request.GET.get("before", ""), now)
    return answer(request, frame, page, whole="operator/receivables.html")


def _page(before: str, now: datetime) -> dict[str, object]:
    after = _cursor(before)
    late = overdue_invoices.list_overdue_page(moment=now, after=after, limit=PAGE + 1)
    totals = receivable_totals.total_receivables(moment=now)
    owed_back = any(total.owed_back_invoices for total in totals)
    shown, looks = late[:PAGE], review_items.list_review_items(moment=now, with_refunds_due=owed_back)
    last = shown[-1] if len(late) > PAGE else None
    return {
        "tiles": _tiles(totals, len(looks)),
        "rows": [_row(row) for row in shown],
        "more": f"?{urlencode({'before': f'{last.due_on}_{last.pk}'})}" if last else "",
        "first": after is None,
        "looks": looks,
        "sends_mail": settings.CLUSTERTAB_SENDS_MAIL,
    }


def _tiles(totals: Sequence[ReceivableTotal], looks: int) -> list[Tile]:
    overdue = [
        Tile(
            label=_("Overdue ({currency})").format(currency=total.overdue.currency),
            value=say.money(total.overdue),
            note=f"{say.counted(total.overdue_invoices, 'invoice')} of {say.counted(total.overdue_tenants, 'tenant')}",
        )
        for total in totals
        if total.overdue_invoices
    ]
    owed_back = [
        Tile(
            label=_("Owed to tenants ({currency})").format(currency=total.owed_back.currency),
            value=say.money(total.owed_back),
            note=_("{invoices} to refund").format(invoices=say.counted(total.owed_back_invoices, "invoice")),
        )
        for total in totals
        if total.owed_back_invoices
    ]
    suspended = say.counted(upcoming_steps.count_suspended(), "tenant")
    return [
        *(overdue or [Tile(label=_("Overdue"), value=_("none"), note=_("Every due invoice is paid"))]),
        *owed_back,
        Tile(label=_("Suspended"), value=suspended, note=_("New GPU jobs do not start")),
        Tile(label=_("Needs review"), value=say.whole(looks), note=_("Items that need your decision")),
    ]


def _row(late: OverdueInvoice) -> OverdueRow:
    note = late.pause_reason or (_("No step while a payment is processing") if late.under_way else "")
    ahead = None if note else upcoming_steps.next_step(late, late.policy)
    return OverdueRow(
        late=late,
        badge=_badge(late, late.policy),
        note=note,
        next=_step(ahead, late, late.policy) if ahead else "",
        on=ahead.day if ahead else None,
        paused=late.paused,
        all_paused=late.all_paused,
    )


def _step(ahead: Mark, late: OverdueInvoice, policy: Policy) -> str:
    if ahead.step is Step.REMINDER:
        return _("Reminder {number}").format(number=ahead.number)
    if ahead.step is Step.SUSPEND and policy.announces and late.announced_on is None:
        return _("Suspension, after its announcement is sent")
    return _(STEPS[ahead.step])


def _badge(late: OverdueInvoice, policy: Policy) -> Badge:
    if late.pause_reason:
        return Badge(label=_("On hold"), tone="muted")
    if late.under_way:
        return Badge(label=_("Processing"), tone="run")
    if late.suspended:
        return Badge(label=_("Suspended"), tone="late")
    if policy.write_off and late.days >= policy.write_off:
        return Badge(label=_(STEPS[Step.WRITE_OFF]), tone="late")
    if late.announced:
        return Badge(label=_(STEPS[Step.ANNOUNCE]), tone="late")
    if late.reminders:
        return Badge(label=_("Reminder {number}").format(number=late.reminders), tone="wait")
    if upcoming_steps.is_past_due(late, policy):
        return Badge(label=_(STEPS[Step.PAST_DUE]), tone="late")
    return Badge(label=_("Due"), tone="wait")


def _cursor(text: str) -> tuple[date, int] | None:
    """A text that is no cursor begins at the top, as without one."""
    match = re.fullmatch(r"(\d{4}-\d{2}-\d{2})_(\d{1,18})", text, re.ASCII)
    try:
        return (date.fromisoformat(match[1]), int(match[2])) if match else None
    except ValueError:
        return None


def _back(before: str) -> str:
    return f"?{urlencode({'before': before})}" if _cursor(before) else ""


def _act(request: HttpRequest, now: datetime) -> None:
    form, by = request.POST, str(request.user)
    if form.get("act") in {"refund", "transfer"}:
        require_recent_proof(request)
    why = form.get("why", "").replace("\0", "").strip()[:500]
    tenant, invoice = _target(form)
    whose = str(invoice) if invoice else _("All invoices of {tenant}").format(tenant=tenant)
    try:
        with acting_as(by, why=why):
            if invoice is not None and form.get("act") in {"refund", "transfer"}:
                messages.success(request, _pay_back(form, invoice, by=by, now=now))
            elif form.get("act") == "resume":
                pauses.resume_dunning(tenant=tenant, invoice=invoice, by=by, moment=now)
                messages.success(request, _("{whose}: dunning resumed.").format(whose=whose))
            else:
                row = _paused(form, tenant, invoice, why=why, by=by, now=now)
                until = (
                    _("until {day}").format(day=say.day(row.until)) if row.until else _("until you resume it")
                )
                messages.success(
                    request, _("{whose}: dunning paused {until}.").format(whose=whose, until=until)
                )
    except (PauseError, CollectionError, PaymentError) as error:
        messages.error(request, sentence(error))


def _pay_back(form: QueryDict, invoice: Invoice, *, by: str, now: datetime) -> str:
    """Refund to the card, or record a transfer; says what was done."""
    if form["act"] == "refund":
        amount = refunds_due.refund_to_card(invoice=invoice, who=by, moment=now)
        return _("Refunding {amount} of {invoice} to the card. This takes about a minute.").format(
            amount=say.money(amount), invoice=invoice
        )
    on = now.astimezone(ZoneInfo(invoice.timezone)).date()
    reference = form.get("reference", "").replace("\0", "").strip()[:200]
    payment = refunds_due.record_transfer(invoice=invoice, reference=reference, who=by, on=on)
    return _("Recorded: {amount} paid back to {tenant}.").format(
        amount=say.minor(-payment.amount, invoice.currency), tenant=invoice.tenant
    )


def _paused(
    form: QueryDict, tenant: Tenant, invoice: Invoice | None, *, why: str, by: str, now: datetime
) -> DunningPause:
    text = form.get("until", "")
    try:
        until = date.fromisoformat(text) if text else None
    except ValueError as error:
        raise PauseError(
            _("{text} is not a date. Use a date like 2026-12-31, or leave it blank.").format(
                text=quoted(text)
            )
        ) from error
    return pauses.pause_dunning(tenant=tenant, invoice=invoice, until=until, reason=why, by=by, moment=now)


def _target(form: QueryDict) -> tuple[Tenant, Invoice | None]:
    tenant = Tenant.objects.filter(slug=form.get("tenant", "").replace("\0", "")).first()
    if tenant is None:
        raise Http404("no such tenant")
    number = form.get("number", "").replace("\0", "")
    if not number or form.get("all") == "yes":
        return tenant, None
    invoice = Invoice.objects.filter(tenant=tenant, number=number, state=InvoiceState.ISSUED).first()
    if invoice is None:
        raise Http404("no such invoice")
    return tenant, invoice
