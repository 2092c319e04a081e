"""The days on which months are closed automatically: the form for all and for single tenants, with a preview."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django import forms
from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, gettext_noop

from billing.invoicing import close_schedules
from billing.invoicing.close_schedules import ScheduleError, Upcoming
from billing.models import CloseKind, CloseRun, CloseSchedule, ReportState
from billing.models.closes import FIRST_DAY, LAST_DAY
from billing.rules.period import parse_month
from portal.core.tenants.access import Right
from portal.core.tenants.models import Tenant
from portal.days import check_day
from portal.sentences import sentence
from portal.web import format as say
from portal.web.access_decorators import operator_page
from portal.web.page_frame import PageFrame

SHOWN = 6  # that come next
OFF = gettext_noop("Scheduled close is off: preview and issue manually.")
STEPS = {
    CloseKind.PREVIEW: gettext_noop("Previews {month} of {tenants} {when}."),
    CloseKind.ISSUE: gettext_noop("Issues {month} of {tenants} {when}."),
}


class ScheduleForm(forms.Form):
    tenant = forms.SlugField(
        label=gettext_lazy("Tenant"),
        required=False,
        help_text=gettext_lazy("Its slug. Blank = every tenant without its own schedule."),
    )
    preview_day = forms.IntegerField(
        label=gettext_lazy("Preview on day"),
        required=False,
        min_value=FIRST_DAY,
        max_value=LAST_DAY,
        help_text=gettext_lazy(
            "1 is the first day after the tenant’s billing period, in its time zone. Blank = manually."
        ),
    )
    issue_day = forms.IntegerField(
        label=gettext_lazy("Issue on day"),
        required=False,
        min_value=FIRST_DAY,
        max_value=LAST_DAY,
        help_text=gettext_lazy(
            "Issues what has no blocker and is within its approval limits. Blank = manually."
        ),
    )
    since = forms.DateField(
        label=gettext_lazy("From"),
        widget=forms.DateInput(format="%Y-%m-%d", attrs={"type": "date"}),
        validators=[check_day],
        help_text=gettext_lazy("Periods that end earlier are closed manually."),
    )

    def clean_tenant(self) -> Tenant | None:
        slug = self.cleaned_data["tenant"]
        tenant = Tenant.objects.filter(slug=slug).first() if slug else None
        if slug and tenant is None:
            raise forms.ValidationError(_("There is no tenant with this slug."))
        return tenant


@operator_page("close", acts=Right.CLOSES)
def close_schedule(request: HttpRequest, frame: PageFrame) -> HttpResponse:
    now = datetime.now(UTC).replace(microsecond=0)
    form = ScheduleForm(request.POST or None, initial=_initial(request.GET.get("tenant", ""), now))
    error, preview = "", None
    if request.method == "POST" and form.is_valid():
        act, values = request.POST.get("act", ""), form.cleaned_data
        try:
            if act in {"save", "delete"}:
                _change(act, values)
                messages.success(request, _("Schedule removed.") if act == "delete" else _("Schedule saved."))
                return redirect("operator_close_schedule")
            preview = _preview(request.POST.get("remove", ""), values, now)
        except ScheduleError as refusal:
            error = sentence(refusal)
    rows = CloseSchedule.objects.select_related("tenant").order_by("tenant__name", "pk")
    page = {
        "rows": rows,
        "upcoming": upcoming_text(now) if preview is None else preview,
        "is_preview": preview is not None,
        "removes": bool(request.POST.get("remove")),
        "error": error,
        "form": form,
    }
    return render(request, "operator/close_schedule.html", {"frame": frame, "page": page})


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
    """What would come next, by a change that is rolled back."""
    with transaction.atomic():
        _change("delete" if removes else "save", values)
        sentences = upcoming_text(now)
        transaction.set_rollback(True)
    whose = values["tenant"].name if values["tenant"] else _("Every tenant without its own schedule")
    if removes:
        return (_("{whose}: schedule removed.").format(whose=whose), *sentences)
    preview, issue = (
        _("on day {day}").format(day=day) if day else _("manually")
        for day in (values["preview_day"], values["issue_day"])
    )
    text = _("{whose}: previewed {preview}, issued {issue}, from {since}.").format(
        whose=whose, preview=preview, issue=issue, since=say.day(values["since"])
    )
    return (text, *sentences)


def upcoming_text(now: datetime, month: str = "") -> tuple[str, ...]:
    """The next steps of the schedule, a sentence each; of one month alone if one is named."""
    steps = close_schedules.list_upcoming(moment=now)
    if not steps:
        first = CloseSchedule.objects.exclude(preview_day=None, issue_day=None).order_by("since").first()
        if first is None:
            return (_(OFF),)
        since = say.day(first.since)
        return (_("Scheduled close starts with periods that end on {day} or later.").format(day=since),)
    sentences = [_sentence(step, now) for step in steps if month in {"", step.month}]
    left = len(sentences) - SHOWN
    if left <= 0:
        return tuple(sentences)
    return (*sentences[:SHOWN], _("And {count} more after that.").format(count=left))


def _sentence(step: Upcoming, now: datetime) -> str:
    year, number = parse_month(step.month)
    name = say.month_name(datetime(year, number, 1, tzinfo=UTC).date())
    later = step.day > now.date()
    when = _("on {day}").format(day=say.day(step.day)) if later else _("in the next hours")
    return _(STEPS[step.kind]).format(month=name, tenants=say.counted(step.tenants, "tenant"), when=when)


def report_text(run: CloseRun | None) -> str:
    """The state of the e-mail about a scheduled run; "" where there is none."""
    report = getattr(run, "report", None) if run is not None and run.scheduled else None
    if report is None:
        return ""
    state = ReportState(report.state).label + (
        _(" to {to}").format(to=", ".join(report.to)) if report.to else ""
    )
    return _("E-mail to operators: {state}. {why}").format(state=state, why=report.reason).strip()
