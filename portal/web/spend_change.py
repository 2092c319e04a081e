"""*Why did it change?*: the difference between two ranges of days, reason by reason; each opens to its jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

from django.http import HttpResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from billing.models import LineKind
from billing.queries.cost_explorer import Days, filter_choices
from billing.queries.jobs import EMPTY
from billing.queries.spend_change import OtherCharge, Part, PartKind, SpendChange, explain_change
from billing.queries.usage_series import Grouping, TooManyRowsError
from billing.reports import run_count_snapshots
from billing.reports.run_count_snapshots import LoadedCounts
from billing.rules.meters import plural
from billing.rules.money import Money
from portal.core.tenants.access import Action
from portal.core.tenants.scope import acting_scope
from portal.web import format as say
from portal.web.access_decorators import TenantRequest, answer, tenant_page
from portal.web.cost_explorer import TOO_MANY, signed, signed_percent
from portal.web.cost_selection import CostSelection, days_text, group_names
from portal.web.reports import AGAIN, LATER
from portal.web.tiles import Tile

REASONS = 15  # that stand alone; the smaller ones are one
KINDS = {
    PartKind.RUNS: gettext_noop("Number of runs"),
    PartKind.LENGTH: gettext_noop("Length of runs"),
    PartKind.VOLUME: gettext_noop("Volume"),
    PartKind.PRICE: gettext_noop("Price"),
    PartKind.MIX: gettext_noop("Mix"),
    PartKind.OTHER: gettext_noop("Not usage"),
}
NOTES = {
    PartKind.RUNS: gettext_noop("more or fewer jobs ran"),
    PartKind.LENGTH: gettext_noop("a run used more or less"),
    PartKind.VOLUME: gettext_noop("of what has no runs, such as tokens"),
    PartKind.PRICE: gettext_noop("the same costs something else"),
    PartKind.MIX: gettext_noop("other models or prices were used"),
    PartKind.OTHER: gettext_noop("fees, minimums, discounts, credits, lines by hand"),
}
OF_USE = {True: (PartKind.VOLUME,), False: (PartKind.RUNS, PartKind.LENGTH)}
"""By whether runs are counted: what is shown only where there is some."""
LINES = {
    LineKind.FEE: gettext_noop("Fees"),
    LineKind.COMMITMENT: gettext_noop("Minimum commitments"),
    LineKind.DISCOUNT: gettext_noop("Discounts"),
    LineKind.CREDIT: gettext_noop("Credits"),
    LineKind.MANUAL: gettext_noop("Lines by hand"),
}

Jobs = Callable[[Days, tuple[str, ...]], str]


@tenant_page(Action.READ_ALL, area="explorer")
def spend_change(request: TenantRequest) -> HttpResponse:
    selection = CostSelection.of(request.GET, today=request.today, by=(Grouping.USER, Grouping.GPU_MODEL))
    slug = request.tenant.slug
    changes: list[SpendChange] = []
    loaded, error = LoadedCounts(), selection.error
    if not error:
        query = selection.cost_query
        may_request = getattr(request, "support_view", None) is None
        loaded = run_count_snapshots.load(
            request.tenant, query, moment=request.moment, may_request=may_request
        )
        try:
            with acting_scope(request.tenant):
                changes = explain_change(
                    request.tenant,
                    query,
                    others=Action.READ_INVOICES in request.may,
                    most_runs=loaded.at_once,
                    counts=loaded.counts,
                )
        except TooManyRowsError:
            error = _(TOO_MANY)
    projects = dict(request.tenant.projects.values_list("name", "pk"))

    def jobs(days: Days, values: tuple[str, ...]) -> str:
        return selection.jobs(slug, days, values, projects)

    page = {
        "selection": selection,
        "form": selection.form,
        "filters": selection.filter_options(filter_choices(request.tenant)),
        "error": error,
        "address": reverse("spend_change", args=[slug]),
        "explorer": reverse("cost_explorer", args=[slug]) + selection.query(),
        "range": days_text(selection.later),
        "earlier_range": days_text(selection.earlier),
        "changes": [_change(selection, change, jobs) for change in changes],
        "runs": _runs(request, loaded, changes) if changes else {},
        "by_total": any(change.by_total for change in changes),
        "usage_alone": Action.READ_INVOICES not in request.may or bool(selection.filters),
    }
    response = answer(
        request, request.frame, page, whole="tenant/spend_change.html", part="tenant/_runs_counted.html"
    )
    if not loaded.is_waiting:
        response["HX-Refresh"] = "true"  # heeded by the question alone
    return response


def _runs(
    request: TenantRequest, loaded: LoadedCounts, changes: Sequence[SpendChange]
) -> Mapping[str, object]:
    """What is said of the number of runs, and when the page asks whether a worker has counted them."""
    is_counted = all(change.runs_counted for change in changes)
    is_first = loaded.is_waiting and loaded.as_of is None
    return {
        "uncounted": loaded.uncounted,
        "too_many": not (is_counted or loaded.uncounted or is_first),
        "most": say.whole(loaded.most),
        "as_of": loaded.as_of,
        "again": LATER if loaded.is_deferred else AGAIN if loaded.is_pending else "",
        "here": request.get_full_path(),
        "zone": request.zone,
    }


def _change(selection: CostSelection, change: SpendChange, jobs: Jobs) -> Mapping[str, object]:
    return {
        "currency": change.earlier.currency,
        "tiles": [
            Tile(label=_("Earlier"), value=say.money(change.earlier), note=days_text(selection.earlier)),
            Tile(label=_("Later"), value=say.money(change.later), note=days_text(selection.later)),
            Tile(
                label=_("Change"),
                value=signed([change.difference]),
                note=signed_percent(change.difference.amount, change.earlier.amount),
            ),
        ],
        "sums": [
            Tile(label=_(KINDS[kind]), value=signed([change.sum_of(kind)]), note=_note(kind, change))
            for kind in PartKind
            if kind not in OF_USE[change.runs_counted] or any(part.kind is kind for part in change.parts)
        ],
        "reasons": reasons(selection, change, jobs),
        "difference": signed([change.difference]),
        "others": [_other(row) for row in change.others],
    }


def _note(kind: PartKind, change: SpendChange) -> str:
    if kind is PartKind.VOLUME and not change.runs_counted:
        return _("how much was used")
    return _(NOTES[kind])


def reasons(
    selection: CostSelection, change: SpendChange, jobs: Jobs, *, most: int = REASONS
) -> list[Mapping[str, object]]:
    """The `most` largest, and one for all others: with it they add up to the difference."""
    largest = max((abs(part.amount.amount) for part in change.parts), default=Fraction(0))
    shown = change.parts[:most]
    names = group_names(
        selection.by, [None if part.kind is PartKind.OTHER else part.values for part in shown]
    )
    rows: list[Mapping[str, object]] = [
        {
            "name": _("Not usage") if part.kind is PartKind.OTHER else name,
            "kind": _(KINDS[part.kind]),
            "why": _why(part),
            "href": _href(selection, part, jobs),
            **_bar(part.amount, change.difference, largest),
        }
        for name, part in zip(names, shown, strict=True)
    ]
    rest = change.parts[most:]
    if rest:
        amount = sum((part.amount for part in rest), Money.zero(change.earlier.currency))
        why = _("Smaller reasons, together")
        rows.append(
            {
                "name": say.counted(len(rest), "other"),
                "kind": "",
                "why": why,
                "href": "",
                **_bar(amount, change.difference, max(largest, abs(amount.amount))),
            }
        )
    return rows


def _bar(amount: Money, difference: Money, largest: Fraction) -> Mapping[str, object]:
    return {
        "amount": signed([amount]),
        "share": _share(amount.amount / difference.amount) if difference.amount else say.NOTHING,
        "width": say.plain(abs(amount.amount) * 100 / largest) if largest else "0",
        "is_more": amount.amount > 0,
    }


def _share(part: Fraction) -> str:
    """`61.0 %`; below zero what pulls the other way."""
    return ("−" if part < 0 else "") + say.percent(abs(part), Fraction(1))


def _why(part: Part) -> str:
    if part.kind is PartKind.OTHER:
        return _("fees, minimums, discounts, credits, lines by hand")
    if part.kind is PartKind.PRICE:
        if part.price_since is None:
            return _("its price was corrected, or differs")
        return _("the price of {day}").format(day=say.day(part.price_since))
    if part.kind is PartKind.MIX:
        return _("dearer models or prices") if part.exact > 0 else _("cheaper models or prices")
    if part.kind is PartKind.LENGTH and part.runs is not None:
        runs = part.runs.runs
        return _("{old} → {new} {unit} a run").format(
            old=say.hours(part.earlier * 3600 / runs.earlier),
            new=say.hours(part.later * 3600 / runs.later),
            unit=_(plural(part.unit)),
        )
    return f"{_volume_words(part)}{_array_words(part)}"


def _volume_words(part: Part) -> str:
    old, new = (say.hours(units * 3600) for units in (part.earlier, part.later))
    if not part.earlier:
        return _("new: {new} {unit}").format(new=new, unit=_(plural(part.unit)))
    if not part.later:
        return _("no longer used: {old} {unit} before").format(old=old, unit=_(plural(part.unit)))
    if part.runs is not None:
        runs = part.runs.runs
        return _("{old} → {new} runs").format(old=say.whole(runs.earlier), new=say.whole(runs.later))
    return _("{old} → {new} {unit}").format(old=old, new=new, unit=_(plural(part.unit)))


def _array_words(part: Part) -> str:
    """`, ben’s array train alone 12`: arrays are one, not task by task."""
    array = part.runs.array if part.runs else None
    if array is None:
        return ""
    return _(", {tasks} of them tasks of {user}’s array {name}").format(
        tasks=say.whole(array.tasks), user=array.user or _(EMPTY), name=array.name
    )


def _href(selection: CostSelection, part: Part, jobs: Jobs) -> str:
    """What is gone has its jobs in the earlier range. What is no usage has none."""
    if part.kind is PartKind.OTHER:
        return ""
    return jobs(selection.later if part.later else selection.earlier, part.values)


def _other(row: OtherCharge) -> tuple[str, str, str, str]:
    name = _(LINES[LineKind(row.kind)]) if row.kind else row.name
    return name, say.money(row.earlier), say.money(row.later), signed([row.later - row.earlier])
