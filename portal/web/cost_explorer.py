"""The cost explorer: what a tenant spent in any days, by any group, beside earlier ones; figures open to jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from django.http import Http404, HttpResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from billing.documents.csv import Cell, rows_to_csv
from billing.queries.cost_explorer import GROUPS, Days, Explored, GroupUse, Step, explore, filter_choices
from billing.queries.costs import per_currency
from billing.queries.usage_series import Grouping, TooManyRowsError, Used
from billing.rules.money import Money, decimal_text
from billing.rules.rounded_sums import rounded_rows
from portal.core.tenants.access import Action
from portal.web import drawing
from portal.web import format as say
from portal.web.access_decorators import TenantRequest, answer, tenant_page
from portal.web.cost_selection import LABELS, CostSelection, days_text, group_names
from portal.web.drawing import Column
from portal.web.tiles import Tile

TOO_MANY = gettext_noop("There are too many groups to add up at once: filter them, or choose fewer days.")
DECIMALS = 12  # of what no decimals tell


@tenant_page(Action.READ, area="explorer")
def cost_explorer(request: TenantRequest) -> HttpResponse:
    selection = CostSelection.of(request.GET, today=request.today, by=(Grouping.PROJECT,))
    slug = request.tenant.slug
    explored, error = None, selection.error
    if not error:
        try:
            explored = explore(
                request.tenant, selection.cost_query, step=selection.step, groups=selection.groups
            )
        except TooManyRowsError:
            error = _(TOO_MANY)
    page: dict[str, object] = {
        "selection": selection,
        "form": selection.form,
        "filters": selection.filter_options(filter_choices(request.tenant)),
        "error": error,
        "address": reverse("cost_explorer", args=[slug]),
        "change": reverse("spend_change", args=[slug]) + selection.query(),
        "csv": reverse("cost_explorer_csv", args=[slug]) + selection.query(),
        "range": days_text(selection.later),
        "earlier_range": days_text(selection.earlier),
    }
    if explored is not None:
        page |= _figures(request, selection, explored)
    return answer(request, request.frame, page, whole="tenant/cost_explorer.html")


@tenant_page(Action.READ, area="explorer")
def cost_explorer_csv(request: TenantRequest) -> HttpResponse:
    """All groups by name, bucket by bucket, exact."""
    selection = CostSelection.of(request.GET, today=request.today, by=(Grouping.PROJECT,))
    if selection.error:
        raise Http404(selection.error)
    try:
        explored = explore(request.tenant, selection.cost_query, step=selection.step, groups=None)
    except TooManyRowsError:
        raise Http404(_(TOO_MANY)) from None
    header = ["from", "through", *map(str, selection.by), "gpu_hours", "currency", "cost"]
    name = f"{request.tenant.slug}-costs-{selection.later.first}-{selection.later.last}.csv"
    return HttpResponse(
        b"".join(rows_to_csv(header, _csv_rows(explored))),
        content_type="text/csv; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


def _csv_rows(explored: Explored) -> Iterator[Sequence[Cell]]:
    """GPU-hours stand in the first row of a bucket and group alone, so that they can be added up."""
    for number, days in enumerate(explored.buckets):
        for group in explored.groups:
            used = group.cells[number]
            hours = decimal_text(used.gpu_seconds / 3600, DECIMALS)
            costs = [(money.currency, decimal_text(money.amount, DECIMALS)) for money in used.cost]
            if not (used.gpu_seconds or costs):
                continue
            for place, (currency, cost) in enumerate(costs or [("", "")]):
                yield (
                    days.first, days.last, *(group.values or ()), hours if not place else "0", currency, cost,
                )  # fmt: skip


def _figures(request: TenantRequest, selection: CostSelection, explored: Explored) -> Mapping[str, object]:
    slug = request.tenant.slug
    projects = dict(request.tenant.projects.values_list("name", "pk"))
    explorer = reverse("cost_explorer", args=[slug])

    def jobs(days: Days, group: GroupUse | None = None) -> str:
        if group is not None and group.values is None:  # no filter selects these: they get names first
            more = selection.more_groups
            return (
                f"{explorer}{(more if days == selection.earlier else more.on(days)).query()}" if more else ""
            )
        return selection.jobs(slug, days, group.values or () if group else (), projects)

    def why(chosen: CostSelection) -> str:
        return reverse("spend_change", args=[slug]) + chosen.query() if request.frame.everybody else ""

    measure, value = _measure(explored)
    rounded = _Rounded.of(explored)
    names = group_names(selection.by, [group.values for group in explored.groups])
    return {
        "explored": explored,
        "is_empty": not explored.groups,
        "tiles": _tiles(explored, selection),
        "by_total": explored.later.by_total or explored.earlier.by_total,
        "of": " · ".join(_(LABELS[one]) for one in selection.by) or _("All usage"),
        "title": _("Spend by {groups}").format(groups=_lower(selection.by)) if selection.by else _("Spend"),
        "columns": _columns(explored, value, measure, rounded, jobs, selection.step),
        "highest": _highest(explored, value, measure),
        "names": names,
        "legend": [
            *((str(number + 1), name) for number, name in enumerate(names[: _drawn(explored)])),
            *([("other", _("Other"))] if len(names) > _drawn(explored) else []),
        ],
        "rows": [
            _group_row(selection, name, group, later, earlier, jobs, why)
            for name, group, later, earlier in zip(
                names, explored.groups, rounded.later, rounded.earlier, strict=True
            )
        ],
        "total": {
            "hours": explored.later.gpu_seconds,
            "cost": say.sums(explored.later.cost),
            "earlier": say.sums(explored.earlier.cost),
            "change": _change(explored.later.cost, explored.earlier.cost),
            "href": jobs(selection.later),
            "earlier_href": jobs(selection.earlier),
            "change_href": why(selection),
        },
        "cells": [
            (
                bucket_name(days, selection.step),
                [
                    (_text(amounts, group.cells[number], measure), jobs(days, group))
                    for group, amounts in zip(explored.groups, rounded.cells[number], strict=True)
                ],
                (_text(rounded.totals[number], explored.totals[number], measure), jobs(days)),
            )
            for number, days in enumerate(explored.buckets)
        ],
    }


def _drawn(explored: Explored) -> int:
    """How many groups have a color of their own."""
    return min(GROUPS, sum(group.values is not None for group in explored.groups))


@dataclass(frozen=True, kw_only=True)
class _Rounded:
    """Amounts as they are shown: groups add up to the totals, buckets too, and the cells of a bucket to it."""

    later: list[list[Money]]  # by group
    earlier: list[list[Money]]
    totals: list[list[Money]]  # by bucket
    cells: list[list[list[Money]]]  # by bucket and group

    @classmethod
    def of(cls, explored: Explored) -> _Rounded:
        groups = explored.groups
        totals = rounded_rows([used.cost for used in explored.totals], explored.later.cost)
        return cls(
            later=rounded_rows([group.later.cost for group in groups], explored.later.cost),
            earlier=rounded_rows([group.earlier.cost for group in groups], explored.earlier.cost),
            totals=totals,
            cells=[
                rounded_rows([group.cells[number].cost for group in groups], total)
                for number, total in enumerate(totals)
            ],
        )


def _lower(by: Sequence[Grouping]) -> str:
    """`user and GPU model`, as within a sentence."""
    labels = [_(LABELS[one]) for one in by]
    return _(" and ").join(say.inside(one) for one in labels)


def bucket_name(days: Days, step: Step) -> str:
    """`20 Nov 2026`, `20 Nov – 26 Nov`."""
    if step is Step.DAY:
        return say.day(days.first)
    return days_text(days)


def _measure(explored: Explored) -> tuple[str, Callable[[Used], Fraction]]:
    """What is drawn: the currency that most was spent in, or GPU-hours where nothing is charged."""
    costs = [*explored.later.cost, *explored.earlier.cost]
    if not costs:
        return "", lambda used: used.gpu_seconds / 3600
    currency = max(costs, key=lambda money: money.amount).currency
    return currency, lambda used: next(
        (money.amount for money in used.cost if money.currency == currency), Fraction(0)
    )


def _columns(
    explored: Explored,
    value: Callable[[Used], Fraction],
    measure: str,
    rounded: _Rounded,
    jobs: Callable[..., str],
    step: Step,
) -> list[Column]:
    values = [
        [
            (place if place < _drawn(explored) else None, value(group.cells[number]))
            for place, group in enumerate(explored.groups)
        ]
        for number in range(len(explored.buckets))
    ]
    top = max((value(used) for used in explored.totals), default=Fraction(0))
    return [
        Column(
            title=f"{bucket_name(days, step)}: {_text(rounded.totals[number], explored.totals[number], measure)}",
            href=jobs(days),
            stack=stack,
        )
        for number, (days, stack) in enumerate(
            zip(explored.buckets, drawing.stacks(values, top=top), strict=True)
        )
    ]


def _highest(explored: Explored, value: Callable[[Used], Fraction], measure: str) -> str:
    top = max((value(used) for used in explored.totals), default=Fraction(0))
    return (
        say.money(Money(top, measure))
        if measure
        else _("{hours} GPU-hours").format(hours=say.hours(top * 3600))
    )


def _text(amounts: Sequence[Money], used: Used, measure: str) -> str:
    if measure:
        return say.sums(amounts)
    return say.hours(used.gpu_seconds) if used.gpu_seconds else say.NOTHING


def _group_row(
    selection: CostSelection,
    name: str,
    group: GroupUse,
    later: Sequence[Money],
    earlier: Sequence[Money],
    jobs: Callable[..., str],
    why: Callable[[CostSelection], str],
) -> Mapping[str, object]:
    within = selection.within(group.values) if group.values else None
    more = selection.more_groups
    alone = within or (more if group.values is None else None)
    return {
        "name": name,
        "within": alone.query() if alone else "",
        "is_other": group.values is None,
        "hours": group.later.gpu_seconds,
        "cost": say.sums(later),
        "earlier": say.sums(earlier),
        "change": _change(later, earlier),
        "href": jobs(selection.later, group),
        "earlier_href": jobs(selection.earlier, group),
        "change_href": why(within) if within else "",
    }


def _change(later: Sequence[Money], earlier: Sequence[Money]) -> str:
    """`+$840.00`, of what is rounded, so that both figures and their difference agree."""
    negated = [-money.rounded() for money in earlier]
    return signed(per_currency([*(money.rounded() for money in later), *negated]))


def signed(amounts: Sequence[Money]) -> str:
    """`+$840.00`, `−$12.00`; a dash for no change."""
    texts = [
        f"{'+' if money.amount > 0 else '−'}{say.money(money if money.amount > 0 else -money)}"
        for money in amounts
        if money.amount
    ]
    return ", ".join(texts) or say.NOTHING


def _tiles(explored: Explored, selection: CostSelection) -> list[Tile]:
    note = days_text(selection.earlier)
    return [
        Tile(label=_("Spend"), value=say.sums(explored.later.cost), note=days_text(selection.later)),
        Tile(label=_("Earlier"), value=say.sums(explored.earlier.cost), note=note),
        Tile(
            label=_("Change"),
            value=_change(explored.later.cost, explored.earlier.cost),
            note=_percent(explored),
        ),
        Tile(
            label=_("GPU-hours"),
            value=say.hours(explored.later.gpu_seconds),
            note=_("earlier {hours}").format(hours=say.hours(explored.earlier.gpu_seconds)),
        ),
    ]


def signed_percent(part: Fraction, of: Fraction) -> str:
    """`+12.5 %`, `−3.0 %`; "" of nothing."""
    if not of:
        return ""
    return ("+" if part > 0 else "−" if part < 0 else "") + say.percent(abs(part), of)


def _percent(explored: Explored) -> str:
    """Of one currency: `+12.5 %`."""
    if len(explored.currencies) != 1 or not explored.earlier.cost:
        return ""
    before = explored.earlier.cost[0].amount
    after = explored.later.cost[0].amount if explored.later.cost else Fraction(0)
    return signed_percent(after - before, before)
