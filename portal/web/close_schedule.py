"""On which days months close by themselves: the form for everyone and for single tenants, with a preview in words."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from babel.dates import format_date
from django import forms
from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from billing.invoicing import close_schedules
from billing.invoicing.close_schedules import ScheduleError, Upcoming
from billing.models import CloseKind, CloseRun, CloseSchedule, ReportState
from billing.models.closes import FIRST_DAY, LAST_DAY
from billing.rules.formatting import LOCALE
from billing.rules.period import parse_month
from portal.core.tenants.models import Tenant
from portal.web import format as say
from portal.web.access_decorators import operator_page
from portal.web.shapes import Shell
from portal.web.shapes.closing import CloseScheduleRow, SchedulePage

SHOWN = 6  # that come next
OFF = "No month closes by itself: preview and issue by hand."
LATER = "Nothing yet: it begins with the periods that end on"
VERBS = {CloseKind.PREVIEW: "Previews", CloseKind.ISSUE: "Issues"}


class ScheduleForm(forms.Form):
    tenant = forms.SlugField(
        label="Tenant",
        required=False,
        help_text="Its slug. Blank: every tenant without a schedule of its own.",
    )
    preview_day = forms.IntegerField(
        label="Preview on day",
        required=False,
        min_value=FIRST_DAY,
        max_value=LAST_DAY,
        help_text="1 is the first day after the tenant’s billing period, in its zone. Blank: by hand.",
    )
    issue_day = forms.IntegerField(
        label="Issue on day",
        required=False,
        min_value=FIRST_DAY,
        max_value=LAST_DAY,
        help_text="Issues what has no blocker and is within its bounds; the rest waits for you. Blank: by hand.",
    )
    since = forms.DateField(
        label="From",
        widget=forms.DateInput(format="%Y-%m-%d", attrs={"type": "date"}),
        help_text="Periods whose last day is earlier are closed by hand.",
    )

    def clean_tenant(self) -> Tenant | None:
        slug = self.cleaned_data["tenant"]
        tenant = Tenant.objects.filter(slug=slug).first() if slug else None
        if slug and tenant is None:
            raise forms.ValidationError("There is no tenant of this slug.")
        return tenant


@operator_page("close", acts=True)
def close_schedule(request: HttpRequest, shell: Shell) -> HttpResponse:
    now = datetime.now(UTC).replace(microsecond=0)
    form = ScheduleForm(request.POST or None, initial=_initial(request.GET.get("tenant", ""), now))
    error, preview = "", None
    if request.method == "POST" and form.is_valid():
        act, values = request.POST.get("act", ""), form.cleaned_data
        try:
            if act in {"save", "delete"}:
                _change(act, values)
                messages.success(request, "Schedule removed." if act == "delete" else "Schedule saved.")
                return redirect("operator_close_schedule")
            preview = _preview(request.POST.get("remove", ""), values, now)
        except ScheduleError as refusal:
            error = str(refusal)
    rows = CloseSchedule.objects.select_related("tenant").order_by("tenant__name", "pk")
    page = SchedulePage(
        rows=tuple(_row(row) for row in rows),
        upcoming=coming(now) if preview is None else preview,
        is_preview=preview is not None,
        removes=bool(request.POST.get("remove")),
        error=error,
        form=form,
    )
    return render(request, "operator/close_schedule.html", {"shell": shell, "page": page})


def _initial(slug: str, now: datetime) -> dict[str, Any]:
    """What the tenant, or everyone, has now; without any, from today."""
    slug = slug.replace("\0", "")
    row = (
        CloseSchedule.objects.filter(tenant__slug=slug) if slug else CloseSchedule.objects.filter(tenant=None)
    )
    current = row.values("preview_day", "issue_day", "since").first() or {"since": now.date()}
    return {**current, "tenant": slug}


def _change(act: str, values: dict[str, Any]) -> None:
    if act == "delete":
        close_schedules.remove_schedule(tenant=values["tenant"])
    else:
        close_schedules.set_schedule(**values)


def _preview(removes: str, values: dict[str, Any], now: datetime) -> tuple[str, ...]:
    """What would come next, by doing it and taking it back."""
    with transaction.atomic():
        _change("delete" if removes else "save", values)
        sentences = coming(now)
        transaction.set_rollback(True)
    whose = values["tenant"].name if values["tenant"] else "Every tenant without a schedule of its own"
    if removes:
        return (f"{whose}: the schedule is removed.", *sentences)
    preview, issue = (
        f"on day {day}" if day else "by hand" for day in (values["preview_day"], values["issue_day"])
    )
    return (f"{whose}: previewed {preview}, issued {issue}, from {say.day(values['since'])}.", *sentences)


def _row(row: CloseSchedule) -> CloseScheduleRow:
    return CloseScheduleRow(
        slug=row.tenant.slug if row.tenant else "",
        tenant=row.tenant.name if row.tenant else "Everyone else",
        preview=f"Day {row.preview_day}" if row.preview_day else "By hand",
        issue=f"Day {row.issue_day}" if row.issue_day else "By hand",
        since=say.day(row.since),
        preview_day=str(row.preview_day or ""),
        issue_day=str(row.issue_day or ""),
        written_since=f"{row.since:%Y-%m-%d}",
    )


def coming(now: datetime, month: str = "") -> tuple[str, ...]:
    """What the schedule does next and when, in sentences; of one month alone if one is named."""
    steps = close_schedules.list_upcoming(moment=now)
    if not steps:
        first = CloseSchedule.objects.exclude(preview_day=None, issue_day=None).order_by("since").first()
        return (f"{LATER} {say.day(first.since)} or later.",) if first else (OFF,)
    sentences = [_sentence(each, now) for each in steps if month in {"", each.month}]
    left = len(sentences) - SHOWN
    return (*sentences[:SHOWN], f"And {left} more after that.") if left > 0 else tuple(sentences)


def _sentence(each: Upcoming, now: datetime) -> str:
    year, number = parse_month(each.month)
    name = format_date(datetime(year, number, 1, tzinfo=UTC).date(), "MMMM y", locale=LOCALE)
    when = f"on {say.day(each.day)}" if each.day > now.date() else "in the next hours"
    return f"{VERBS[each.kind]} {name} of {say.counted(each.tenants, 'tenant')} {when}."


def report_of(run: CloseRun | None) -> str:
    """What became of the e-mail about a scheduled run; "" where there is none."""
    report = getattr(run, "report", None) if run is not None and run.scheduled else None
    if report is None:
        return ""
    to = f" to {', '.join(report.to)}" if report.to else ""
    return f"E-mail to operators: {ReportState(report.state).label}{to}. {report.why}".strip()
