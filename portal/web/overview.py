"""A tenant's billing period at a glance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date, timedelta
from fractions import Fraction

from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.translation import gettext as _

from billing.catalog import billing_periods
from billing.models import Verdict
from billing.queries import invoices, payers
from billing.queries import overview as reading
from billing.queries.accrued_charges import accrued, load_other_charges
from billing.queries.costs import per_currency
from billing.queries.overview import Around, Overview, Use
from billing.queries.payers import Paying
from billing.queries.period_budgets import list_period_budgets
from billing.queries.period_forecast import paid_for, period_forecast
from portal.core.tenants.access import Action
from portal.core.tenants.scope import acting_scope
from portal.web import format as say
from portal.web.access_decorators import TenantRequest, answer, tenant_page
from portal.web.own_overview import own_overview
from portal.web.period_forecast import forecast
from portal.web.tiles import overview_tiles
from portal.web.usage_chart import usage_chart
from portal.web.what_changed import what_changed

INVOICES, SPEND_ROWS, SPANS = 6, 8, 4
DAY = timedelta(days=1)


@tenant_page(Action.READ, area="overview")
def overview(request: TenantRequest) -> HttpResponse:
    day = _first_day(request)
    with acting_scope(request.tenant):
        around = reading.around(request.tenant, moment=request.moment, day=day, supposing=True)
    if around is None and day:
        raise Http404("no such period")
    if Action.READ_ALL not in request.may:
        return own_overview(request, around)
    page = _page(request, around) if around else {}
    return answer(request, request.frame, page, whole="tenant/overview.html")


def _first_day(request: HttpRequest) -> date | None:
    """The first day of the period in the address; None where it names none."""
    text = request.GET.get("period", "")
    try:
        day = date.fromisoformat(text) if text else None
    except ValueError:
        day = date.min
    if day is not None and day.isoformat() != text:  # the pages write it in one way
        raise Http404("no such period")
    return day


def _page(request: TenantRequest, around: Around) -> Mapping[str, object]:
    period = around.period
    first, end = reading.days_of(period)
    today = billing_periods.day_of(request.moment, period)
    running = today < end
    with acting_scope(request.tenant):
        other = load_other_charges(request.tenant)
        charges = accrued(tenant=request.tenant, period=period, other=other, inputs=around.inputs)
        others, through = paid_for(around, charges, through=request.complete_through, moment=request.moment)
        budgets = list_period_budgets(request.tenant, period, first=first, end=end) if running else []
        changed = what_changed(request, first=first, last=today if running else end - DAY)
    summary = reading.overview(
        request.tenant,
        period,
        around.before,
        today=today,
        accrued=charges,
        newest=INVOICES if request.frame.invoices else 0,
        marks=request.marks if running else (),
    )
    paying = payers.list_paying(request.tenant, around.inputs.payers)
    explorer = reverse("cost_explorer", args=[request.tenant.slug])
    return {
        "around": around,
        "summary": summary,
        "accrued": charges,
        "due": charges if period.closed_at is None else None,
        "tiles": overview_tiles(request, summary, charges, running=running),
        "forecast": forecast(summary, period_forecast(summary, charges, others, through), budgets)
        if running
        else None,
        "manages": Action.MANAGE in request.may,
        "chart": usage_chart(
            summary,
            today=today,
            spend_label=_("Spend at first unit’s prices") if charges else _("Spend"),
            explorer=explorer,
        ),
        "spend": _largest(summary.uses),
        "spend_total": sum((use.amount for use in summary.uses), Fraction(0)),
        "invoices": invoices.with_balances(summary.documents, on=request.today),
        "paid_by": _spans(_("Paid by {spans}."), [(span.payer, span) for span in paying if span.mine]),
        "pays_for": _spans(_("Pays for {spans}."), [(span.user, span) for span in paying if not span.mine]),
        "paid": per_currency(row.amount for row in charges.paid) if charges else [],
        "costs": explorer + _days_query(summary),
        "changed": changed,
        "unpriced": _unpriced(summary.uses),
        "metered": _metered(summary.uses),
    }


def _days_query(summary: Overview) -> str:
    """The days of the period."""
    return f"?from={summary.first}&through={summary.end - DAY}"


def _spans(sentence: str, spans: Sequence[tuple[str, Paying]]) -> str:
    """`Paid by Physics since 1 Apr 2026, until 30 Jun 2026`, the newest first; "" for none."""
    texts = []
    for name, span in spans:
        text = _("{name} from {day}, until {last}") if span.until else _("{name} since {day}")
        last = say.day(span.until - DAY) if span.until else ""
        texts.append(text.format(name=name, day=say.day(span.since), last=last))
    more = _("; and {count} more").format(count=len(texts) - SPANS) if len(texts) > SPANS else ""
    return sentence.format(spans=f"{'; '.join(texts[:SPANS])}{more}") if texts else ""


def _largest(uses: Sequence[Use]) -> list[Use]:
    """Those that cost most; all others are one."""
    rest = uses[SPEND_ROWS:]
    if not rest:
        return list(uses)
    other = Use(
        say.counted(len(rest), "other"),
        "",
        Verdict.CHARGED,
        sum((use.gpu_seconds for use in rest), Fraction(0)),
        per_currency(amount for use in rest for amount in use.cost),
    )
    return [*uses[:SPEND_ROWS], other]


def _metered(uses: Sequence[Use]) -> list[Use]:
    """What was used of declared meters, by meter and dimensions, over all projects."""
    sums: dict[tuple[str, ...], list[Use]] = {}
    for use in uses:
        if use.meter:
            sums.setdefault((use.meter, use.gpu_model, use.verdict, use.unit), []).append(use)
    return [
        replace(
            same[0],
            project="",
            quantity=sum((use.quantity for use in same), Fraction(0)),
            cost=per_currency(amount for use in same for amount in use.cost),
        )
        for _, same in sorted(sums.items())
    ]


def _unpriced(uses: Sequence[Use]) -> str:
    """`12 GPU-hours on MI300X`, joined; CPU and memory without a price are named by their project."""
    texts = []
    for use in uses:
        if use.verdict != Verdict.UNPRICED:
            continue
        text = _("{hours} GPU-hours on {model}") if use.gpu_model else _("{hours} GPU-hours")
        what = text.format(hours=say.hours(use.gpu_seconds), model=use.gpu_model)
        if not use.gpu_seconds:
            what = _("the CPU or memory")
        if use.meter:
            dimensions = f" ({use.gpu_model})" if use.gpu_model else ""
            what = f"{say.quantity(use.quantity)} {use.unit}{dimensions}"
        texts.append(_("{usage} of {project}").format(usage=what, project=use.project))
    return ", ".join(texts)
