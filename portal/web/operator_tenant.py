"""A tenant's page for the operator: how it stands, and what can be done about it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import cast

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.utils.translation import gettext as _

from billing.models import Quota, Subscription
from billing.queries import operator_tenant as reading
from billing.queries.operator_tenant import TenantOverview
from portal.core.tenants import notes
from portal.core.tenants.access import Right, rights_of
from portal.core.tenants.models import Tenant, TenantNote, User
from portal.core.tenants.models.notes import LONGEST_NOTE
from portal.core.tenants.team import TeamError
from portal.sentences import sentence
from portal.web import form_input
from portal.web import format as say
from portal.web.access_decorators import answer, operator_page
from portal.web.badges import Badge
from portal.web.page_frame import PageFrame
from portal.web.tenant_acts import tenant_of
from portal.web.tiles import Tile


@operator_page("tenants", acts=Right.READ)
def operator_tenant(request: HttpRequest, frame: PageFrame, *, tenant: str) -> HttpResponse:
    """Posted to with a note, which every operator may write: it changes nothing of the tenant."""
    row, now = tenant_of(tenant), datetime.now(UTC)
    person = cast("User", request.user)
    if request.method == "POST":
        _change_notes(request, row, person, now)
        return redirect(f"{request.path}#notes-title")
    today = now.astimezone(row.zone).date()
    seen = reading.tenant_overview(row, moment=now, on=today)
    rights = rights_of(request.user)
    page = {
        "tenant": row,
        "seen": seen,
        "badge": _badge(seen),
        "tiles": _tiles(seen, seen.plan_at(now)),
        "subscriptions": [(one, _phase(one, now)) for one in seen.subscriptions],
        "quotas": [(one, _scope(one), _amount(one)) for one in seen.quotas],
        "acts": [
            (reverse(f"operator_{name}", args=[row.slug]), label)
            for name, label, right in _acts(seen)
            if right in rights
        ],
        "zone": row.zone,
        "notes": [(note, notes.may_remove(note, person)) for note in seen.notes],
        "note": form_input.last(request, request.path).get("text", ""),
        "longest_note": LONGEST_NOTE,
    }
    return answer(request, frame, page, whole="operator/tenant.html")


def _change_notes(request: HttpRequest, tenant: Tenant, person: User, moment: datetime) -> None:
    """Add what was typed, or remove the note that was pressed; a refusal is told on the page that follows."""
    try:
        if request.POST.get("act") == "remove":
            number = request.POST.get("note", "")
            pk = int(number) if number.isascii() and number.isdecimal() and len(number) < 19 else 0
            notes.remove_note(note=get_object_or_404(TenantNote, tenant=tenant, pk=pk), by=person)
            messages.success(request, _("The note is removed."))
        else:
            notes.add_note(tenant=tenant, text=request.POST.get("text", ""), author=person, moment=moment)
            messages.success(request, _("The note is saved. Operators see it, and nobody else."))
    except TeamError as refusal:
        form_input.keep(request, "text")
        messages.error(request, sentence(refusal))


def _acts(seen: TenantOverview) -> list[tuple[str, str, Right]]:
    """What can be done now: who has no wallet is granted nothing, and who is not blocked is not resumed."""
    offers = [("suspend_tenant", _("Suspend"), Right.JOBS)]
    if seen.blocks:
        offers.append(("resume_tenant", _("Resume"), Right.JOBS))
    if seen.wallets:
        offers.append(("grant_credit", _("Grant credit"), Right.CREDITS))
    if seen.has_buckets:
        offers.append(("import_tokens", _("Import token balances"), Right.CREDITS))
    if seen.archive is None:
        offers.append(("change_plan", _("Change plan"), Right.TENANTS))
    return offers


def _badge(seen: TenantOverview) -> Badge:
    if seen.archive is not None:
        return Badge(label=_("Left"), tone="muted")
    if seen.suspension is not None or seen.blocks:
        return Badge(label=_("Suspended"), tone="late")
    return Badge(label=_("Active"), tone="ok")


def _tiles(seen: TenantOverview, plan: Subscription | None) -> list[Tile]:
    slug = seen.tenant.slug
    due = seen.open
    tiles = [
        Tile(
            label=_("To pay"),
            value=say.sums(due.sums) if due.count else _("Nothing"),
            note=_("{invoices}, the first due {day}").format(
                invoices=say.counted(due.count, "invoice"), day=say.day(due.first_due)
            )
            if due.first_due
            else _("no open invoice"),
            href=reverse("invoices", args=[slug]),
        )
    ]
    if seen.owed_back.count:
        tiles.append(
            Tile(
                label=_("Owed back"),
                value=say.sums(seen.owed_back.sums),
                note=_("refund it on Collections"),
                href=reverse("operator_receivables"),
            )
        )
    if seen.credit:
        tiles.append(
            Tile(label=_("Credit balance"), value=say.sums(seen.credit), note=_("pays its next invoices"))
        )
    tiles.append(
        Tile(
            label=_("Plan"),
            value=plan.plan.name if plan else _("None"),
            note=_("prices") if plan else _("its usage is unpriced"),
            href=reverse("operator_plan", args=[plan.plan.name]) if plan else "",
        )
    )
    return tiles


def _phase(row: Subscription, now: datetime) -> str:
    """Whether it is the plan of now, of before or of later."""
    if row.since > now:
        return _("planned")
    return _("ended") if row.until is not None and row.until <= now else _("current")


def _scope(row: Quota) -> str:
    """What it counts, in one line."""
    names = (
        row.project.name if row.project else "",
        row.user,
        row.account,
        row.cluster,
        row.queue,
        row.qos,
        row.gpu_model,
    )
    return ", ".join(name for name in names if name) or _("everything")


def _amount(row: Quota) -> str:
    """`500.00 USD monthly`"""
    unit = row.unit or _("GPU-hours")
    return f"{row.amount.normalize():f} {unit}, {row.get_every_display().lower()}"
