"""A tenant's billing period at a glance."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import date, timedelta
from fractions import Fraction

from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse

from billing.models import BillingPeriod, Verdict
from billing.reading import invoices, jobs
from billing.reading import overview as reading
from billing.reading.costs import per_currency
from billing.reading.overview import Elapsed, Overview, Use
from billing.rules.money import Money
from portal.tenants.access import Action
from portal.web import format as say
from portal.web.invoices import invoice_row
from portal.web.jobs import job_row
from portal.web.shapes import Chart, InvoiceRow, Measure, OverviewPage, Series, SpendRow, Tile
from portal.web.visit import Visit, answer, tenant_page

COSTLIEST, INVOICES, SPEND_ROWS = 8, 6, 8
HOUR = 3600

MANIFOLD = 10  # a change by more than this many times is no longer told in per cent


@tenant_page(Action.READ, area="overview")
def overview(request: HttpRequest, visit: Visit) -> HttpResponse:
    page = _page(visit, request.GET.get("period", ""))
    return answer(request, visit.shell, page, whole="tenant/overview.html")


def _page(visit: Visit, asked: str) -> OverviewPage:
    periods = reading.periods(visit.tenant, moment=visit.moment)
    through = say.moment(visit.complete_through, visit.zone) if visit.complete_through else ""
    if not periods:
        return OverviewPage(
            period="", zone=visit.tenant.timezone, earlier="", later="", complete_through=through
        )
    place = _chosen(periods, asked)
    period, before = periods[place], periods[place - 1] if place else None
    today = reading.local_day(visit.moment, period)
    found = reading.overview(visit.tenant, period, before, today=today)
    costliest = jobs.costliest(visit.tenant, period, limit=COSTLIEST, prices=found.prices)
    return OverviewPage(
        period=say.period(period),
        zone=period.timezone,
        earlier=_query(before),
        later=_query(periods[place + 1] if place + 1 < len(periods) else None),
        complete_through=through,
        tiles=_tiles(visit, found, today),
        chart=_chart(found, today),
        spend=_spend(found),
        spend_total=say.sums(found.spend),
        hours_total=say.hours(found.gpu_seconds),
        jobs=tuple(job_row(job, visit.zone) for job in costliest),
        invoices=_invoices(visit),
        unpriced=_unpriced(found.uses),
    )


def _chosen(periods: Sequence[BillingPeriod], asked: str) -> int:
    """The place of the period that starts on the day asked for; the newest where nothing is asked for."""
    if not asked:
        return len(periods) - 1
    for place, period in enumerate(periods):
        if key(period) == asked:
            return place
    raise Http404("no such period")


def key(period: BillingPeriod) -> str:
    """A period in an address: its first day."""
    return reading.days_of(period)[0].isoformat()


def _query(period: BillingPeriod | None) -> str:
    return f"?period={key(period)}" if period else ""


def _tiles(visit: Visit, found: Overview, today: date) -> tuple[Tile, ...]:
    running = today < found.end
    count = jobs.count(visit.tenant, found.period)
    tiles = [
        _compared(
            Tile(label="Spend so far" if running else "Spend", value=say.sums(found.spend), note=""),
            found,
            found.spend[0].amount if found.currency else Fraction(0),
            lambda before: before.amount,
            lambda before: say.money(Money(before.amount, found.currency)) if found.currency else "",
            running=running,
        ),
        _compared(
            Tile(label="GPU-hours", value=say.hours(found.gpu_seconds), note=""),
            found,
            found.gpu_seconds,
            lambda before: before.gpu_seconds,
            lambda before: say.hours(before.gpu_seconds),
            running=running,
        ),
        Tile(label="Jobs", value=say.whole(count), note="started in this period"),
    ]
    if visit.shell.invoices:
        tiles.append(_open_invoices(visit))
    return tuple(tiles)


def _compared(
    tile: Tile,
    found: Overview,
    now: Fraction,
    value: Callable[[Elapsed], Fraction],
    text: Callable[[Elapsed], str],
    *,
    running: bool,
) -> Tile:
    """The tile with how it compares to the same days of the period before."""
    if found.before is None or found.before_period is None or not (shown := text(found.before)):
        return Tile(label=tile.label, value=tile.value, note="nothing earlier to compare with")
    then, name = value(found.before), say.period(found.before_period)
    note = f"vs. {shown} in the same days of {name}" if running else f"vs. {shown} in {name}"
    difference = now - then
    if not then or abs(difference) > MANIFOLD * then:
        return Tile(label=tile.label, value=tile.value, note=note)
    text_of = say.percent(abs(difference), then)
    if text_of == "0 %":
        return Tile(label=tile.label, value=tile.value, note=note, change="±0 %")
    sign = "+" if difference > 0 else "−"
    return Tile(
        label=tile.label,
        value=tile.value,
        note=note,
        change=f"{sign}{text_of}",
        direction="up" if difference > 0 else "down",
    )


def _open_invoices(visit: Visit) -> Tile:
    found = invoices.open_sums(visit.tenant)
    href = reverse("invoices", args=[visit.tenant.slug])
    if not found.count:
        return Tile(label="Open invoices", value="None", note="everything is paid", href=href)
    due = f", the first due {say.day(found.first_due)}" if found.first_due else ""
    if found.first_due is not None and found.first_due < visit.today:
        due = f", the first was due {say.day(found.first_due)}"
    note = f"{found.count} to pay{due}"
    return Tile(label="Open invoices", value=say.sums(found.sums), note=note, href=href)


def _chart(found: Overview, today: date) -> Chart:
    days = [found.first + timedelta(days=n) for n in range((found.end - found.first).days)]
    names: dict[int | None, str] = dict(found.series)
    if any(day.project is None for day in found.days):
        names[None] = "Other"
    gpu: dict[tuple[int | None, date], Fraction] = defaultdict(Fraction)
    spend: dict[tuple[int | None, date], Fraction] = defaultdict(Fraction)
    for used in found.days:
        gpu[used.project, used.day] += used.gpu_seconds
        spend[used.project, used.day] += used.amount
    begun = [day for day in days if day <= today]
    measures = [
        _measure(
            "hours",
            "GPU-hours",
            "GPU-hours",
            names,
            days,
            begun,
            gpu,
            lambda seconds: seconds / HOUR,
            say.hours,
        )
    ]
    if found.currency:

        def money(amount: Fraction) -> str:
            return say.money(Money(amount, found.currency))

        prefix = say.symbol(found.currency)
        measures.append(
            _measure(
                "spend", "Spend", found.currency, names, days, begun, spend, lambda it: it, money, prefix
            )
        )
    return Chart(
        title="Use per day by project",
        days=tuple(say.short_day(day) for day in days),
        measures=tuple(measures),
    )


def _measure(
    key: str,
    label: str,
    unit: str,
    names: dict[int | None, str],
    days: list[date],
    begun: list[date],
    values: dict[tuple[int | None, date], Fraction],
    scale: Callable[[Fraction], Fraction],
    text: Callable[[Fraction], str],
    prefix: str = "",
) -> Measure:
    coming = ("",) * (len(days) - len(begun))
    series = tuple(
        Series(
            name=name,
            values=(*(say.plain(scale(values[project, day])) for day in begun), *coming),
            texts=(*(text(values[project, day]) for day in begun), *coming),
        )
        for project, name in names.items()
    )
    if len(series) == 1:
        totals = series[0].texts
    else:
        sums = (sum((values[project, day] for project in names), Fraction(0)) for day in begun)
        totals = (*(text(total) for total in sums), *coming)
    return Measure(key=key, label=label, series=series, totals=totals, unit=unit, prefix=prefix)


def _spend(found: Overview) -> tuple[SpendRow, ...]:
    total = sum((amount.amount for amount in found.spend), Fraction(0))
    shown = found.uses[:SPEND_ROWS]
    rows = [_spend_row(use, total) for use in shown]
    if rest := found.uses[SPEND_ROWS:]:
        other = Use(
            f"{say.counted(len(rest), 'other')}",
            "",
            Verdict.CHARGED,
            sum((use.gpu_seconds for use in rest), Fraction(0)),
            per_currency(amount for use in rest for amount in use.cost),
        )
        rows.append(_spend_row(other, total))
    return tuple(rows)


def _spend_row(use: Use, total: Fraction) -> SpendRow:
    cost = sum((amount.amount for amount in use.cost), Fraction(0))
    return SpendRow(
        project=use.project,
        gpu_model=use.gpu_model or ("" if use.gpu_seconds else "no GPU"),
        gpu_hours=say.hours(use.gpu_seconds) if use.gpu_seconds else say.NOTHING,
        amount=say.sums(use.cost) if use.verdict == Verdict.CHARGED else "",
        percent=say.percent(cost, total),
        width=say.plain(cost * 100 / total) if total else "0",
        verdict=use.verdict,
    )


def _invoices(visit: Visit) -> tuple[InvoiceRow, ...]:
    if not visit.shell.invoices:
        return ()
    rows, _ = invoices.newest(visit.tenant, on=visit.today, limit=INVOICES)
    return tuple(invoice_row(row) for row in rows)


def _unpriced(uses: Sequence[Use]) -> str:
    """`12 GPU-hours on MI300X`, joined; CPU and memory without a price are named by their project."""
    texts = []
    for use in uses:
        if use.verdict != Verdict.UNPRICED:
            continue
        model = f" on {use.gpu_model}" if use.gpu_model else ""
        what = f"{say.hours(use.gpu_seconds)} GPU-hours{model}" if use.gpu_seconds else "the CPU or memory"
        texts.append(f"{what} of {use.project}")
    return ", ".join(texts)
