"""What the operator sees of money that has not come: who owes since when, what comes next, what needs a person."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from django.conf import settings
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.urls import reverse

from billing.dunning import overdue_invoices, upcoming_steps
from billing.dunning.overdue_invoices import OverdueInvoice
from billing.dunning.upcoming_steps import ReviewItem
from billing.models import DunningPause, Invoice, InvoiceState
from billing.payments import refunds_due
from billing.payments.gateway_access import CollectionError
from billing.receivables import pauses
from billing.receivables.dunning_policies import Policies
from billing.receivables.pauses import PauseError
from billing.receivables.settlement import PaymentError
from billing.rules.dunning import Mark, Policy, Step
from portal.core.audit import acting_as
from portal.core.tenants.models import Tenant
from portal.excerpt import quoted
from portal.web import format as say
from portal.web.access_decorators import answer, operator_page
from portal.web.shapes import Badge, CloseTile, CollectingPage, LateRow, LookRow, Shell

PAGE = 50
STEPS = {
    Step.PAST_DUE: "Past due",
    Step.ANNOUNCE: "Suspension announced",
    Step.SUSPEND: "Suspension",
    Step.WRITE_OFF: "Proposal to write it off",
}
KEPT = (
    "Notices are written and kept, and none is sent: EMAIL_URL is not set. Nobody is suspended either, since nobody "
    "was told."
)
PROCESSING = "Nothing while its payment is processing"


@operator_page("collecting", acts=True)
def collecting(request: HttpRequest, shell: Shell) -> HttpResponse:
    now = datetime.now(UTC).replace(microsecond=0)
    if request.method == "POST":
        _act(request, now)
        return redirect(f"{reverse('operator_collecting')}{_back(request.POST.get('before', ''))}")
    page = _page(request.GET.get("before", ""), now)
    return answer(request, shell, page, whole="operator/collecting.html")


def _page(before: str, now: datetime) -> CollectingPage:
    after = _cursor(before)
    late = overdue_invoices.list_overdue_page(moment=now, after=after, limit=PAGE + 1)
    policies, shown = Policies(), late[:PAGE]
    paused = {(row.tenant_id, row.invoice_id) for row in pauses.filter_active(now.date())}
    looks = upcoming_steps.list_review_items(moment=now)
    last = shown[-1] if len(late) > PAGE else None
    return CollectingPage(
        tiles=_tiles(now, len(looks)),
        rows=tuple(_row(each, policies.of(each.tenant, each.due_on), paused) for each in shown),
        more=f"?{urlencode({'before': f'{last.due_on}_{last.pk}'})}" if last else "",
        first=after is None,
        looks=tuple(_look(each) for each in looks),
        notice="" if settings.CLUSTERTAB_SENDS_MAIL else KEPT,
        notices=reverse("admin:billing_notice_changelist"),
    )


def _tiles(now: datetime, looks: int) -> tuple[CloseTile, ...]:
    owed = upcoming_steps.total_overdue(moment=now)
    tiles = [
        CloseTile(
            label=f"Late in {each.amount.currency}",
            value=say.money(each.amount),
            note=f"{say.counted(each.invoices, 'invoice')} of {say.counted(each.tenants, 'tenant')}",
            href="",
            current=False,
        )
        for each in owed
    ] or [
        CloseTile(
            label="Late", value="nothing", note="Everything that was due is paid", href="", current=False
        )
    ]
    tiles += [
        CloseTile(
            label=f"Owed to tenants in {each.amount.currency}",
            value=say.money(each.amount),
            note=f"{say.counted(each.invoices, 'invoice')} to be paid back",
            href="",
            current=False,
        )
        for each in refunds_due.total_due()
    ]
    tiles.append(
        CloseTile(
            label="Suspended",
            value=say.counted(upcoming_steps.count_suspended(), "tenant"),
            note="Their GPU jobs do not start",
            href="",
            current=False,
        )
    )
    tiles.append(
        CloseTile(
            label="To look at",
            value=say.whole(looks),
            note="What only people can decide",
            href="",
            current=False,
        )
    )
    return tuple(tiles)


def _row(late: OverdueInvoice, policy: Policy, paused: set[tuple[int, int | None]]) -> LateRow:
    note = late.pause_reason or (PROCESSING if late.under_way else "")
    ahead = None if note else upcoming_steps.next_step(late, policy)
    return LateRow(
        slug=late.slug,
        tenant=late.name,
        number=late.number,
        due=say.minor(late.left, late.currency),
        since=say.day(late.due_on),
        days=say.counted(late.days, "day"),
        badge=_badge(late, policy),
        next=_said(ahead, late, policy) if ahead else "",
        when=say.day(ahead.day) if ahead else "",
        note=note,
        paused=(late.tenant, late.pk) in paused,
        all_paused=(late.tenant, None) in paused,
    )


def _said(ahead: Mark, late: OverdueInvoice, policy: Policy) -> str:
    if ahead.step is Step.REMINDER:
        return f"Reminder {ahead.number}"
    untold = ahead.step is Step.SUSPEND and policy.announces and late.announced_on is None
    return f"{STEPS[ahead.step]}, once its announcement is sent" if untold else STEPS[ahead.step]


def _badge(late: OverdueInvoice, policy: Policy) -> Badge:
    if late.pause_reason:
        return Badge(label="Rests", tone="muted")
    if late.under_way:
        return Badge(label="Processing", tone="run")
    if late.suspended:
        return Badge(label="Suspended", tone="late")
    if policy.write_off and late.days >= policy.write_off:
        return Badge(label="Write it off?", tone="late")
    if late.announced:
        return Badge(label="Suspension announced", tone="late")
    if late.reminders:
        return Badge(label=f"Reminder {late.reminders}", tone="wait")
    return (
        Badge(label="Past due", tone="late")
        if upcoming_steps.is_past_due(late, policy)
        else Badge(label="Due", tone="wait")
    )


def _look(look: ReviewItem) -> LookRow:
    href = reverse(f"admin:billing_{look.table}_changelist") if look.table else ""
    return LookRow(
        what=look.what,
        sentence=look.sentence,
        slug=look.slug,
        number=look.number,
        href=href,
        act=look.act if look.number else "",
    )


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
    why = form.get("why", "").replace("\0", "").strip()[:500]
    tenant, invoice = _target(form)
    whose = str(invoice) if invoice else f"Every invoice of {tenant}"
    try:
        with acting_as(by, why=why):
            if invoice is not None and form.get("act") in {"refund", "transfer"}:
                messages.success(request, _pay_back(form, invoice, by=by, now=now))
            elif form.get("act") == "resume":
                pauses.resume_dunning(tenant=tenant, invoice=invoice, by=by, moment=now)
                messages.success(request, f"{whose} goes on.")
            else:
                row = _paused(form, tenant, invoice, why=why, by=by, now=now)
                until = f"until {say.day(row.until)}" if row.until else "until somebody resumes it"
                messages.success(request, f"{whose} rests {until}.")
    except (PauseError, CollectionError, PaymentError) as error:
        messages.error(request, str(error))


def _pay_back(form: QueryDict, invoice: Invoice, *, by: str, now: datetime) -> str:
    """Refund to the card, or record a transfer; says what was done."""
    if form["act"] == "refund":
        amount = refunds_due.refund_to_card(invoice=invoice, who=by, moment=now)
        return f"{say.money(amount)} of {invoice} are refunded to the card within a minute."
    on = now.astimezone(ZoneInfo(invoice.timezone)).date()
    reference = form.get("reference", "").replace("\0", "").strip()[:200]
    payment = refunds_due.record_transfer(invoice=invoice, reference=reference, who=by, on=on)
    return f"{say.minor(-payment.amount, invoice.currency)} are recorded as paid back to {invoice.tenant}."


def _paused(
    form: QueryDict, tenant: Tenant, invoice: Invoice | None, *, why: str, by: str, now: datetime
) -> DunningPause:
    text = form.get("until", "")
    try:
        until = date.fromisoformat(text) if text else None
    except ValueError as error:
        raise PauseError(f"{quoted(text)} is no day: write one like 2026-12-31, or none.") from error
    return pauses.pause_dunning(tenant=tenant, invoice=invoice, until=until, why=why, by=by, moment=now)


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
