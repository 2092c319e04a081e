"""A tenant's billing period at a glance."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from fractions import Fraction

from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse

from billing.catalog import billing_periods
from billing.models import BillingPeriod, Verdict
from billing.queries import invoices, payers, third_party_charges
from billing.queries import overview as reading
from billing.queries.accrued_charges import Accrued, BesideUse, Paid, accrued, ask_beside
from billing.queries.costs import per_currency
from billing.queries.overview import Around, Elapsed, Overview, Use
from billing.queries.payers import Paying
from billing.queries.third_party_charges import Going
from billing.rules.money import Money
from portal.core.tenants.access import Action
from portal.core.tenants.asking import Ask
from portal.core.tenants.models import Tenant
from portal.web import balance_tiles
from portal.web import format as say
from portal.web.access_decorators import Visit, answer, tenant_page
from portal.web.invoices import invoice_row
from portal.web.jobs import job_row
from portal.web.period_forecast import forecast
from portal.web.shapes import (
    Chart,
    Due,
    Fact,
    Measure,
    OverviewPage,
    PaidRow,
    Series,
    SpendRow,
    Tile,
)

INVOICES, SPEND_ROWS, STRETCHES = 6, 8, 4
HOUR = 3600
DAY = timedelta(days=1)

MANIFOLD = 10  # a change by more than this many times is no longer told in per cent


@dataclass(frozen=True)
class _Told:
    """The period asked for, if any has begun, and its statement where it takes one."""

    around: Around | None
    accrued: Accrued | None = None
    others: Sequence[Going] = ()  # for whom the tenant pays in the period, while it runs
    through: datetime | None = None  # how far their clusters are read, and its own


def _beside(
    request: HttpRequest, tenant: Tenant, moment: datetime
) -> tuple[Ask[Around | None], Ask[BesideUse]]:
    return reading.ask_around(tenant, moment=moment, day=_asked(request)), ask_beside(tenant)


def _asked(request: HttpRequest) -> date | None:
    """The first day of the period that the address asks for; None where it asks for none."""
    text = request.GET.get("period", "")
    try:
        day = date.fromisoformat(text) if text else None
    except ValueError:
        day = date.min
    if day is not None and day.isoformat() != text:  # `key` writes it in one way
        raise Http404("no such period")
    return day


def _told(request: HttpRequest, visit: Visit, around: Around | None, other_charges: BesideUse) -> _Told:
    if around is None:
        if _asked(request):
            raise Http404("no such period")
        return _Told(None)
    charges = accrued(tenant=visit.tenant, period=around.period, beside_use=other_charges)
    if charges is None or not charges.others or around.period.end <= visit.moment:
        return _Told(around, charges, through=visit.complete_through)
    return _Told(
        around,
        charges,
        third_party_charges.going(tenant=visit.tenant, accrued=charges),
        third_party_charges.read_through(tenant=visit.tenant, accrued=charges, moment=visit.moment),
    )


@tenant_page(Action.READ, area="overview", extra_queries=_beside, outside=_told, at_once=True)
def overview(request: HttpRequest, visit: Visit, told: _Told) -> HttpResponse:
    return answer(request, visit.shell, _page(visit, told), whole="tenant/overview.html")


def _page(visit: Visit, period_data: _Told) -> OverviewPage:
    through = say.moment(visit.complete_through, visit.zone) if visit.complete_through else ""
    if period_data.around is None:
        return OverviewPage(
            period="", zone=visit.tenant.timezone, earlier="", later="", complete_through=through
        )
    period, before = period_data.around.period, period_data.around.before
    today = billing_periods.day_of(visit.moment, period)
    paying = payers.ask_told(visit.tenant)
    newest = invoices.ask_newest(visit.tenant, on=visit.today, limit=INVOICES)
    summary = reading.overview(
        visit.tenant,
        period,
        before,
        today=today,
        accrued=period_data.accrued,
        extra_asks=(paying, newest) if visit.shell.invoices else (paying,),
    )
    return OverviewPage(
        period=say.period(period),
        zone=period.timezone,
        earlier=_query(before),
        later=_query(period_data.around.after),
        complete_through=through,
        tiles=_tiles(visit, summary, today, period_data.accrued),
        forecast=forecast(summary, period_data.accrued, period_data.others, period_data.through)
        if today < summary.end
        else None,
        due=_due(period_data.accrued) if period_data.accrued and period.closed_at is None else None,
        chart=_chart(summary, today, "Spend at first unit’s prices" if period_data.accrued else "Spend"),
        spend=_spend(summary),
        terms=tuple(Fact(label=name, value=say.money(amount)) for name, amount in summary.terms),
        spend_total=say.sums(summary.spend),
        hours_total=say.hours(summary.gpu_seconds),
        jobs=tuple(job_row(job, visit.zone) for job in summary.costliest),
        invoices=tuple(invoice_row(row) for row in newest.answer) if visit.shell.invoices else (),
        paid_by=_stretches("Paid by", [(each.payer, each) for each in paying.answer if each.mine]),
        pays_for=_stretches("Pays for", [(each.user, each) for each in paying.answer if not each.mine]),
        paid=_paid(period_data.accrued.paid) if period_data.accrued else (),
        paid_total=say.sums(per_currency(row.amount for row in period_data.accrued.paid))
        if period_data.accrued
        else "",
        unpriced=_unpriced(summary.uses),
    )


def _stretches(verb: str, spans: Sequence[tuple[str, Paying]]) -> str:
    """`Paid by Physics since 1 Apr 2026, until 30 Jun 2026`, the newest first; "" for none."""
    texts = []
    for name, each in spans:
        ended = f", until {say.day(each.until - DAY)}" if each.until else ""
        texts.append(f"{name} {'since' if not ended else 'from'} {say.day(each.since)}{ended}")
    more = f"; and {len(texts) - STRETCHES} more" if len(texts) > STRETCHES else ""
    return f"{verb} {'; '.join(texts[:STRETCHES])}{more}." if texts else ""


def _paid(rows: Sequence[Paid]) -> tuple[PaidRow, ...]:
    return tuple(
        PaidRow(
            user=row.user,
            project=row.project,
            gpu_hours=say.hours(row.gpu_seconds) if row.gpu_seconds else say.NOTHING,
            amount=say.money(row.amount),
        )
        for row in rows
    )


def key(period: BillingPeriod) -> str:
    """A period in an address: its first day."""
    return reading.days_of(period)[0].isoformat()


def _query(period: BillingPeriod | None) -> str:
    return f"?period={key(period)}" if period else ""


def _due(accrued: Accrued) -> Due:
    """What an invoice of the period would say now, before tax."""
    return Due(
        rows=(
            Fact(label="Use of this period", value=say.sums(per_currency(accrued.use.values()))),
            *(
                Fact(label=name, value=say.money(amount))
                for name, amount in (*accrued.terms, *accrued.beside)
            ),
        ),
        total=say.sums(accrued.due),
    )


def _accrued(summary: Overview, accrued: Accrued | None, *, running: bool) -> Tile:
    """Days are kept at first units' prices: what a statement comes to is not compared with them."""
    tile = Tile(label="Accrued so far" if running else "Spend", value=say.sums(summary.spend), note="")
    if accrued is not None:
        note = "as an invoice would say it now" if running else "fees and discounts included"
        if for_others := per_currency(row.amount for row in accrued.paid):
            whole = say.sums(per_currency([*summary.spend, *for_others]))
            return replace(tile, value=whole, note=f"{note}, {say.sums(for_others)} of it for others")
        return replace(tile, note=note)
    return _compared(
        tile,
        summary,
        summary.spend[0].amount if summary.currency else Fraction(0),
        lambda before: before.amount,
        lambda before: say.money(Money(before.amount, summary.currency)) if summary.currency else "",
        running=running,
    )


def _tiles(visit: Visit, summary: Overview, today: date, accrued: Accrued | None) -> tuple[Tile, ...]:
    running = today < summary.end
    tiles = [
        _accrued(summary, accrued, running=running),
        _compared(
            Tile(label="GPU-hours", value=say.hours(summary.gpu_seconds), note=""),
            summary,
            summary.gpu_seconds,
            lambda before: before.gpu_seconds,
            lambda before: say.hours(before.gpu_seconds),
            running=running,
        ),
        Tile(label="Jobs", value=say.whole(summary.started), note="started in this period"),
    ]
    if summary.balances:
        tiles.append(_wallets(visit, summary.balances))
    if visit.shell.invoices and (summary.open.count or not summary.balances):
        tiles.append(balance_tiles.open_invoices(visit, summary.open))
    if visit.shell.invoices and summary.owed_back.count:
        tiles.append(balance_tiles.owed_back(visit, summary.owed_back))
    return tuple(tiles)


def _wallets(visit: Visit, balances: Sequence[tuple[str, int, int]]) -> Tile:
    """What is left of what was prepaid."""
    return Tile(
        label="Prepaid balance",
        value=" + ".join(say.minor(balance, unit) for unit, balance, _ in balances),
        note=f"in {say.counted(sum(count for *_, count in balances), 'wallet')}",
        href=reverse("wallets", args=[visit.tenant.slug]),
    )


def _compared(
    tile: Tile,
    summary: Overview,
    now: Fraction,
    value: Callable[[Elapsed], Fraction],
    text: Callable[[Elapsed], str],
    *,
    running: bool,
) -> Tile:
    """The tile with how it compares to the same days of the period before."""
    if summary.before is None or summary.before_period is None or not (shown := text(summary.before)):
        return Tile(label=tile.label, value=tile.value, note="nothing earlier to compare with")
    then, name = value(summary.before), say.period(summary.before_period)
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


def _chart(summary: Overview, today: date, spend_label: str) -> Chart:
    days = [summary.first + timedelta(days=n) for n in range((summary.end - summary.first).days)]
    names: dict[int | None, str] = dict(summary.series)
    if any(day.project is None and day.day >= summary.first for day in summary.days):
        names[None] = "Other"
    gpu: dict[tuple[int | None, date], Fraction] = defaultdict(Fraction)
    spend: dict[tuple[int | None, date], Fraction] = defaultdict(Fraction)
    for used in summary.days:
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
    if summary.currency:

        def money(amount: Fraction) -> str:
            return say.money(Money(amount, summary.currency))

        prefix = say.symbol(summary.currency)
        measures.append(
            _measure(
                "spend",
                spend_label,
                summary.currency,
                names,
                days,
                begun,
                spend,
                lambda it: it,
                money,
                prefix,
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


def _spend(summary: Overview) -> tuple[SpendRow, ...]:
    total = sum((amount.amount for use in summary.uses for amount in use.cost), Fraction(0))
    shown = summary.uses[:SPEND_ROWS]
    rows = [_spend_row(use, total) for use in shown]
    if rest := summary.uses[SPEND_ROWS:]:
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
