"""Budgets: a tenant's quotas with what is used of them, set by its owners; and those that are near or over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any

from django.contrib import messages
from django.db.models import DecimalField, ExpressionWrapper, F
from django.db.models.functions import NullIf
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _

from billing.models import (
    Quota,
    QuotaAction,
    QuotaBlock,
    QuotaBlockState,
    QuotaCredits,
    QuotaEvery,
    QuotaMeasure,
    QuotaPeriod,
)
from billing.models.quotas import SCOPE
from billing.quotas import demands, quotas, status
from billing.quotas.quotas import Setter
from billing.quotas.status import QuotaStatus, amount_text, counts_sentence, period_text, scope_text
from billing.quotas.terms import DEFAULT_THRESHOLDS, QuotaError
from billing.rules import quotas as rules
from billing.rules.errors import RuleError
from billing.rules.money import rounded_text
from billing.rules.quotas import QuotaState
from portal.config_file.entries import read
from portal.config_file.quotas import QuotaEntry
from portal.config_file.toml_table import Table
from portal.core.tenants.access import Action
from portal.core.tenants.models import Tenant
from portal.core.tenants.scope import acting_scope
from portal.sentences import sentence
from portal.web.access_decorators import TenantRequest, answer, operator_page, tenant_act, tenant_page
from portal.web.form_input import options
from portal.web.page_frame import PageFrame

SHOWN = 200  # budgets on the operators' page
SHOWN_FAILURES = 20
FIRST = ("name", "measure", "amount", "every", "thresholds", "forecast_thresholds", "action", "watch")
"""Fields that most budgets need; the others are folded away."""
LONGEST = 500  # characters of a field
LISTS = ("thresholds", "forecast_thresholds", "recipients")
TEXTS = ("name", "amount", "every", "measure", "unit", "project", *SCOPE, "repeat_every", "credits", "action")
FLAGS = ("with_paid", "watch")
NAMES = (*TEXTS, *LISTS, *FLAGS, "from", "until", "hours")
YES = "yes"
BADGES = {QuotaState.OK: "ct-ok", QuotaState.NEAR: "ct-wait", QuotaState.OVER: "ct-late"}


@dataclass(frozen=True, kw_only=True)
class BudgetRow:
    """One budget as tables show it."""

    name: str
    scope: str
    period: str
    counts: str
    used: str
    amount: str
    left: str
    percent: str  # "" of a budget of nothing
    width: int  # of the bar, in percent
    forecast: str
    resets_at: datetime | None
    state: QuotaState
    badge: str
    state_label: str
    effect: str  # what it does while all is used
    blocks: Sequence[str]  # what it does to accounts now, in sentences
    tenant: str = ""
    as_of: datetime | None = None


@tenant_page(Action.READ, area="budgets")
def budgets(request: TenantRequest) -> HttpResponse:
    fields = {name: request.GET.get(name, "").replace("\0", "").strip()[:LONGEST] for name in NAMES}
    manages = Action.MANAGE in request.may
    moment = request.moment.replace(microsecond=0)
    with acting_scope(request.tenant):
        rows = list(quotas.list_quotas(request.tenant))
        blocks = demands.list_open(rows)
        listed = [_row(one, blocks) for one in status.load_statuses(rows, moment=moment)]
        preview, error = None, ""
        if manages and request.GET.get("act") == "preview":
            try:
                preview = _preview(request.tenant, fields, moment)
            except (QuotaError, RuleError, ValueError) as refusal:
                error = sentence(refusal)
        edited = next((row for row in rows if row.name == request.GET.get("edit")), None)
    page = {
        "rows": listed,
        "manages": manages,
        "preview": preview,
        "error": error,
        **_form(_fields(_values(edited) if edited else fields)),
        "hidden": [(name, value) for name, value in fields.items() if value],
        "ending": next((row.name for row in rows if manages and row.name == request.GET.get("end")), ""),
        "edited": edited.name if edited else fields["name"] if preview or error else "",
        "is_open": bool(preview or error or edited or not rows),
    }
    return answer(request, request.frame, page, whole="tenant/budgets.html")


@tenant_act(Action.MANAGE)
def change_budget(request: HttpRequest, tenant: Tenant) -> HttpResponse:
    """Save or end one; what is refused says why, and nothing is kept."""
    moment, name = datetime.now(UTC).replace(microsecond=0), request.POST.get("name", "")[:LONGEST]
    try:
        if request.POST.get("act") == "end":
            if quotas.end_quota(tenant=tenant, name=name, by=Setter.OWNER, moment=moment):
                messages.success(request, _("Budget %(name)s is ended.") % {"name": name})
        else:
            fields = {one: request.POST.get(one, "").replace("\0", "").strip()[:LONGEST] for one in NAMES}
            row = _entry(fields).write(tenant, by=Setter.OWNER, moment=moment)
            messages.success(request, _("Budget %(name)s is saved.") % {"name": row.name})
    except (QuotaError, RuleError, ValueError) as refusal:
        messages.error(request, sentence(refusal))
    return redirect(reverse("budgets", args=[tenant.slug]))


@operator_page("operator_budgets")
def operator_budgets(request: HttpRequest, frame: PageFrame) -> HttpResponse:
    """Those of all tenants that are used most, as they were last looked at."""
    moment = datetime.now(UTC)
    periods = QuotaPeriod.objects.filter(quota__ended_at=None).exclude(end__lte=moment)
    most = periods.annotate(
        ratio=ExpressionWrapper(F("used") / NullIf(F("amount"), Decimal(0)), DecimalField())
    ).filter(used__gt=0)
    listed = most.select_related("quota__tenant", "quota__project").order_by(
        F("ratio").desc(nulls_first=True), "pk"
    )
    shown = list(listed[:SHOWN])
    blocks = demands.list_open([period.quota for period in shown])
    rows = [_stored_row(period, blocks) for period in shown]
    failures = QuotaBlock.objects.filter(ended_at=None).exclude(error="").select_related("account__cluster")
    page = {
        "rows": [row for row in rows if row.state is not QuotaState.OK],
        "failures": failures.order_by("pk")[:SHOWN_FAILURES],
        "others": periods.count() - sum(row.state is not QuotaState.OK for row in rows),
        "moment": moment,
    }
    return answer(request, frame, page, whole="operator/budgets.html")


def _preview(tenant: Tenant, fields: Mapping[str, str], moment: datetime) -> dict[str, Any]:
    """How the budget would stand, saved now."""
    entry = _entry(fields)
    quota, before = quotas.suppose_quota(
        tenant=tenant, name=entry.name, terms=entry.terms(tenant), by=Setter.OWNER, moment=moment
    )
    (one,) = status.load_statuses([quota], moment=moment)
    passed = rules.reached(one.figure.used, amount=one.amount, thresholds=quota.thresholds)
    return {
        "row": _row(one, {}),
        "is_new": before is None,
        "before": before and amount_text(before.amount, before.unit),
        "passed": ", ".join(level.text for level in passed),
        "parents": [parent.name for parent in quotas.parents_of(quota, list(quotas.list_quotas(tenant)))],
    }


def _entry(fields: Mapping[str, str]) -> QuotaEntry:
    """What a file would say. Raises ValueError with the sentences that a file would get."""
    values: dict[str, Any] = {name: fields[name] for name in TEXTS if fields[name]}
    for name in LISTS:
        parts = [part.strip() for part in fields[name].split(",") if part.strip()]
        if parts or name == "thresholds":
            values[name] = parts
    for name in ("from", "until"):
        if fields[name]:
            values[name] = _day(fields[name])
    values |= {name: True for name in FLAGS if fields[name] == YES}
    if fields["hours"]:
        if not (fields["hours"].isascii() and fields["hours"].isdecimal()):
            raise ValueError(_("Write the hours of a rolling window as a whole number, such as 168."))
        values["hours"] = int(fields["hours"][:9])
    table = Table("budget", values, [])
    entry = read(table, QuotaEntry)
    if entry is None:
        raise ValueError(" ".join(table.errors))
    return entry


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise ValueError(_("Write a day like 2026-03-01.")) from None


def _row(one: QuotaStatus, blocks: Mapping[int, Sequence[QuotaBlock]]) -> BudgetRow:
    quota, figure, percent = one.quota, one.figure, one.percent
    return BudgetRow(
        **_common(quota, one.state, percent, blocks),
        used=one.text(figure.used),
        left=one.text(one.left),
        forecast="" if figure.forecast is None else one.text(figure.forecast),
        resets_at=one.resets_at,
        as_of=figure.as_of,
    )


def _stored_row(period: QuotaPeriod, blocks: Mapping[int, Sequence[QuotaBlock]]) -> BudgetRow:
    quota, used, amount = period.quota, Fraction(period.used), Fraction(period.amount)
    state = rules.state(used, amount=amount, thresholds=quota.thresholds)
    return BudgetRow(
        **_common(quota, state, rules.share(used, amount), blocks),
        used=amount_text(used, quota.unit),
        left=amount_text(amount - used, quota.unit),
        forecast="" if period.forecast is None else amount_text(period.forecast, quota.unit),
        resets_at=period.end,
        tenant=quota.tenant.slug,
        as_of=period.evaluated_at,
    )


def _common(
    quota: Quota, state: QuotaState, percent: Fraction | None, blocks: Mapping[int, Sequence[QuotaBlock]]
) -> dict[str, Any]:
    labels = {
        QuotaState.OK: _("Within budget"),
        QuotaState.NEAR: _("Threshold reached"),
        QuotaState.OVER: _("Used up"),
    }
    return {
        "name": quota.name,
        "scope": scope_text(quota),
        "period": period_text(quota),
        "counts": counts_sentence(quota),
        "amount": amount_text(quota.amount, quota.unit),
        "percent": "" if percent is None else f"{rounded_text(percent, 1)} %",
        "width": 100 if percent is None else int(min(max(percent, Fraction(0)), Fraction(100))),
        "state": state,
        "badge": BADGES[state],
        "state_label": labels[state],
        "effect": _effect(quota),
        "blocks": _block_sentences(blocks.get(quota.pk, ())),
    }


def _block_sentences(rows: Sequence[QuotaBlock]) -> list[str]:
    """What was read back is told apart from what is only asked for."""
    labels = {
        QuotaBlockState.BLOCKED: _("Blocked: {accounts}"),
        QuotaBlockState.REQUESTED: _("Not blocked yet: {accounts}"),
        QuotaBlockState.LIFTING: _("Being unblocked: {accounts}"),
        QuotaBlockState.WATCHED: _("Would be blocked: {accounts}"),
    }
    names = {state: ", ".join(row.account.name for row in rows if row.state == state) for state in labels}
    return [label.format(accounts=names[state]) for state, label in labels.items() if names[state]]


def _effect(quota: Quota) -> str:
    if quota.action == QuotaAction.NOTIFY:
        return _("Only notifies")
    does = dict(_actions())[quota.action]
    return _("{action} (watched, nothing is stopped)").format(action=does) if quota.watch else does


def _values(quota: Quota) -> dict[str, str]:
    """What the form shows of a budget that there is."""
    values = {name: str(getattr(quota, name) or "") for name in ("name", "every", "measure", "unit", *SCOPE)}
    values |= {"credits": quota.credits, "action": quota.action}
    values |= {name: YES if getattr(quota, name) else "" for name in FLAGS}
    values |= {"amount": f"{quota.amount.normalize():f}", "hours": str(quota.hours or "")}
    values |= {"project": quota.project.name if quota.project else ""}
    values |= {"from": str(quota.first_day or ""), "until": str(quota.end_day or "")}
    values |= {"repeat_every": "" if quota.repeat_every is None else f"{quota.repeat_every.normalize():f}"}
    lists: Mapping[str, Sequence[str]] = {
        "thresholds": quota.thresholds,
        "forecast_thresholds": quota.forecasts,
        "recipients": quota.recipients,
    }
    return values | {name: ", ".join(texts) for name, texts in lists.items()}


def _form(fields: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The form in two parts; the second is open where something in it says more than the form does by itself."""
    first = sorted((one for one in fields if one["name"] in FIRST), key=lambda one: FIRST.index(one["name"]))
    more = [one for one in fields if one["name"] not in FIRST]
    is_filled = any(one["value"] not in ("", QuotaCredits.GROSS.value) for one in more)
    return {"parts": [("", first, True), (_("More options"), more, is_filled)]}


def _fields(values: Mapping[str, str]) -> list[dict[str, Any]]:
    first = not any(values.values())

    def one(name: str, label: str, hint: str = "", begin: str = "", **more: Any) -> dict[str, Any]:
        return {"name": name, "label": label, "hint": hint, "value": begin if first else values[name], **more}

    measure, every = values["measure"] or QuotaMeasure.MONEY, values["every"] or QuotaEvery.MONTH
    return [
        one(
            "name", _("Name"), _("Lower-case letters, digits and hyphens, such as monthly-gpu"), required=True
        ),
        one("measure", _("Counts"), choices=options(_measures(), measure)),
        one("amount", _("Amount"), _("In your currency, GPU-hours or credits"), required=True, numeric=True),
        one("every", _("Period"), choices=options(_periods(), every)),
        one("hours", _("Hours"), _("Of a rolling window, such as 168"), numeric=True),
        one("from", _("First day"), _("Of a fixed term"), kind="date"),
        one("until", _("Ends before"), _("Of a fixed term"), kind="date"),
        one("project", _("Project"), _("Blank = all")),
        one("user", _("User"), _("Blank = all")),
        one("account", _("Account"), _("Blank = all")),
        one("cluster", _("Cluster"), _("Blank = all")),
        one("queue", _("Queue"), _("Blank = all")),
        one("qos", _("QOS"), _("Blank = all")),
        one("gpu_model", _("GPU model"), _("Blank = all")),
        one(
            "thresholds",
            _("Notify at"),
            _("Shares or levels, such as 80%, 900.00"),
            ", ".join(DEFAULT_THRESHOLDS),
        ),
        one("forecast_thresholds", _("Notify at forecast"), _("Such as 100%; blank = never")),
        one("repeat_every", _("Repeat every"), _("Beyond the last threshold; blank = never"), numeric=True),
        one(
            "action",
            _("When all is used"),
            choices=options(_actions(), values["action"] or QuotaAction.NOTIFY),
        ),
        one(
            "watch",
            _("Try it first"),
            _("Nothing is stopped; the history says what would have been"),
            choices=options(_flags(), values["watch"]),
        ),
        one(
            "credits",
            _("Credits"),
            _("Of money of the whole tenant"),
            choices=options(_credits(), values["credits"] or QuotaCredits.GROSS),
        ),
        one(
            "with_paid",
            _("Count what you pay for others"),
            choices=options(_flags(), values["with_paid"]),
        ),
        one("recipients", _("Recipients"), _("E-mails of members; blank = owners and billing members")),
    ]


def _actions() -> list[tuple[str, str]]:
    names = {
        QuotaAction.NOTIFY: _("Only notify"),
        QuotaAction.NO_GPU_JOBS: _("No new GPU job starts"),
        QuotaAction.NO_SUBMISSIONS: _("No new job can be submitted"),
    }
    return [(value.value, label) for value, label in names.items()]


def _credits() -> list[tuple[str, str]]:
    names = {QuotaCredits.GROSS: _("Do not count"), QuotaCredits.NET: _("Lower what is used")}
    return [(value.value, label) for value, label in names.items()]


def _flags() -> list[tuple[str, str]]:
    return [("", _("No")), (YES, _("Yes"))]


def _measures() -> list[tuple[str, str]]:
    names = {
        QuotaMeasure.MONEY: _("Money, before tax"),
        QuotaMeasure.GPU_HOURS: _("GPU-hours"),
        QuotaMeasure.CREDITS: _("Wallet credits"),
    }
    return [(value.value, label) for value, label in names.items()]


def _periods() -> list[tuple[str, str]]:
    names = {
        QuotaEvery.MONTH: _("Month"),
        QuotaEvery.BILLING_PERIOD: _("Billing period"),
        QuotaEvery.DAY: _("Day"),
        QuotaEvery.WEEK: _("Week"),
        QuotaEvery.QUARTER: _("Quarter"),
        QuotaEvery.YEAR: _("Year"),
        QuotaEvery.ROLLING: _("Rolling window"),
        QuotaEvery.TERM: _("Fixed term"),
    }
    return [(value.value, label) for value, label in names.items()]
