"""A report's tiles, rows and bars, for its template to print."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from zoneinfo import ZoneInfo

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from billing.reports import margin as margins
from billing.reports.margin import MarginError
from billing.reports.shapes import ZERO, By, ModelCapacity, Report, Row, Split, Standing
from billing.rules.money import Money
from clusters.models import Cluster
from portal.sentences import sentence
from portal.web import format as say
from portal.web.badges import Badge
from portal.web.tiles import Tile

MOST_ROWS = 100
STANDINGS = {
    Standing.WAIVED: Badge(label=gettext_noop("Not charged"), tone="muted"),
    Standing.UNPRICED: Badge(label=gettext_noop("No price"), tone="late"),
    Standing.UNASSIGNED: Badge(label=gettext_noop("Unassigned"), tone="wait"),
}
SOURCES = {
    "device": gettext_noop("measured on its GPUs"),
    "node": gettext_noop("node average"),
    "model": gettext_noop("model average"),
    "cluster": gettext_noop("cluster average"),
}
NAMELESS = {
    By.TENANT: gettext_noop("(no tenant)"),
    By.PROJECT: gettext_noop("(no project)"),
    By.NAMESPACE: gettext_noop("(no account)"),
    By.USER: gettext_noop("(no user)"),
    By.MODEL: gettext_noop("(unknown model)"),
    By.POD: gettext_noop("(no job ID)"),
}
PARTS = {
    "effective": gettext_noop("Effective GPU-hours"),
    "waste": gettext_noop("Wasted GPU-hours"),
    "unknown": gettext_noop("Unknown GPU-hours"),
}

Stretch = tuple[str, str, str]
"""One part of a bar: its name, where it begins and its width, in per cent of the bar."""


@dataclass(frozen=True, kw_only=True)
class TopJob:
    """One of the most expensive jobs of a row."""

    number: str
    name: str
    user: str
    seconds: Fraction  # GPU-seconds
    cost: Money


@dataclass(frozen=True, kw_only=True)
class ReportRow:
    """A group of a report, or their total. Its shares are those of `seconds`, its hours are `shown`."""

    name: str
    detail: str = ""  # "jupyter-ada of ben in notebooks"
    badge: Badge | None = None  # None where it is charged
    seconds: Split
    shown: Split
    bar: Sequence[Stretch]
    width: str = "100"  # of the bar, in per cent of the longest one
    cost: Sequence[Money]  # empty unless charged
    wasted: Sequence[Money]  # the cost of the waste; empty where no telemetry covers it
    sources: str = ""  # "measured on its GPUs, node average"
    jobs: int
    top_jobs: Sequence[TopJob] = ()


def tiles(report: Report, shown: Report) -> list[Tile]:
    """Allocated GPU-hours with their cost, and each part of them. `shown` is the report as it is rounded."""
    jobs = f"{say.sums(_money(shown, 'allocated'))}, {say.counted(report.jobs, 'job')}"
    hours = say.part_hours(shown.seconds.allocated, report.seconds.allocated)
    allocated = Tile(label=_("Allocated GPU-hours"), value=hours, note=jobs)
    return [allocated, *(_tile(report, shown, part, _(label)) for part, label in PARTS.items())]


def _tile(report: Report, shown: Report, part: str, label: str) -> Tile:
    split = report.seconds
    seconds = getattr(split, part)
    if not split.covered and part != "unknown":
        return Tile(label=label, value=say.NOTHING, note=_("no telemetry"))
    note = f"{say.sums(_money(shown, part))}, {say.percent(seconds, split.allocated)}"
    return Tile(label=label, value=say.part_hours(getattr(shown.seconds, part), seconds), note=note)


def margin_of(report: Report, cluster: Cluster) -> tuple[list[Tile], str]:
    """Tiles of revenue, operating cost and margin, or the sentence why there are none.

    Neither where no operating cost was entered.
    """
    if not margins.known(cluster):
        return [], ""
    try:
        cluster_margin = margins.by_models(report, cluster)
    except MarginError as error:
        return [], sentence(error)
    revenue = cluster_margin.revenue
    share = _("{share} of revenue").format(share=say.percent(cluster_margin.margin, revenue))
    tiles = (
        (_("Revenue"), revenue, _("at unit prices, CPU and memory included")),
        (_("Operating cost"), cluster_margin.operating_cost, _("all capacity, idle or not")),
        (_("Margin"), cluster_margin.margin, share if revenue > 0 else ""),
    )
    return [
        Tile(label=label, value=say.money(Money(amount, cluster_margin.currency)), note=note)
        for label, amount, note in tiles
    ], ""


def rows(report: Report, shown: Report, tenants: Mapping[str, str]) -> tuple[list[ReportRow], int]:
    """The first rows with GPU usage, and how many more the CSV has; `tenants` are names by slug."""
    gpu_rows = [
        (row, rounded) for row, rounded in zip(report.rows, shown.rows, strict=True) if row.seconds.allocated
    ]
    first = gpu_rows[:MOST_ROWS]
    longest = max((row.seconds.allocated for row, _rounded in first), default=ZERO)
    first_rows = [_row(row, rounded, report.by, longest, tenants) for row, rounded in first]
    return first_rows, len(gpu_rows) - len(first)


def total(report: Report, shown: Report) -> ReportRow:
    return ReportRow(
        name=_("Total"),
        seconds=report.seconds,
        shown=shown.seconds,
        bar=_bar(report.seconds),
        cost=_money(shown, "allocated"),
        wasted=_money(shown, "waste") if report.seconds.covered else [],
        jobs=report.jobs,
    )


def capacity_rows(report: Report) -> list[tuple[str, ModelCapacity, Sequence[Stretch]]]:
    """Capacity by model, with its sum where there are several."""
    if report.capacity is None:
        return []
    models = [(model.gpu_model or _(NAMELESS[By.MODEL]), model) for model in report.capacity.models]
    if len(models) > 1:
        models.append((_("Total"), report.capacity.whole))
    return [(name, model, _capacity_bar(model)) for name, model in models]


def capacity_period(report: Report, zone: ZoneInfo) -> str:
    """The part of the period in which capacity is known, "" where it is all of it."""
    capacity = report.capacity
    if capacity is None or (capacity.since, capacity.until) == (report.since, report.until):
        return ""
    ends = (say.moment(datetime.fromtimestamp(at, UTC), zone) for at in (capacity.since, capacity.until))
    return " – ".join(ends)


def _row(row: Row, rounded: Row, by: By, longest: Fraction, tenants: Mapping[str, str]) -> ReportRow:
    name, detail = _name(row, by, tenants)
    money = rounded.money
    sources = dict.fromkeys(SOURCES.get(of.source, of.source) for of in row.sources)
    return ReportRow(
        name=name,
        detail=detail,
        badge=STANDINGS.get(row.standing),
        seconds=row.seconds,
        shown=rounded.seconds,
        bar=_bar(row.seconds),
        width=say.plain(row.seconds.allocated * 100 / longest) if longest else "0",
        cost=[Money(money.allocated, row.currency)] if money else [],
        wasted=[Money(money.waste, row.currency)] if money and row.money and row.money.covered else [],
        sources=", ".join(_(source) for source in sources),
        jobs=row.jobs,
        top_jobs=[
            TopJob(
                number=job.pod or str(job.record),
                name=job.name if job.name != job.pod else "",
                user=job.user,
                seconds=job.gpu_seconds,
                cost=Money(job.cost, row.currency),
            )
            for job in row.top_jobs
        ],
    )


def _name(row: Row, by: By, tenants: Mapping[str, str]) -> tuple[str, str]:
    """Its name, and what else is to be said of it."""
    if row.rest:
        return _("All others"), ""
    of, nameless = row.labels, _(NAMELESS[by])
    match by:
        case By.POD:
            name = of["name"] if of["name"] != of["pod"] else ""
            user = _("of {user}").format(user=of["user"]) if of["user"] else ""
            account = _("in {account}").format(account=of["namespace"] or _(NAMELESS[By.NAMESPACE]))
            return of["pod"] or nameless, " ".join(filter(None, (name, user, account)))
        case By.PROJECT:
            return of["project"] or nameless, of["tenant"]
        case By.NAMESPACE:
            return of["namespace"] or nameless, of["cluster"]
        case By.TENANT if of["tenant"] in tenants:
            return tenants[of["tenant"]], of["tenant"]
        case _:
            (label,) = of.values()
            return label or nameless, ""


def _money(report: Report, part: str) -> list[Money]:
    return [Money(getattr(money, part), code) for code, money in report.money.items()]


def _bar(split: Split) -> Sequence[Stretch]:
    return _stretches([(part, getattr(split, part)) for part in PARTS], split.allocated)


def _capacity_bar(of: ModelCapacity) -> Sequence[Stretch]:
    parts = [
        ("effective", of.allocated),
        ("idle", max(of.idle, ZERO)),
        ("drained", of.drained),
        ("down", of.down),
    ]
    return _stretches(parts, sum((seconds for _part, seconds in parts), ZERO))


def _stretches(parts: Iterable[tuple[str, Fraction]], whole: Fraction) -> Sequence[Stretch]:
    """Side by side, those that are not empty."""
    stretches, begin = [], ZERO
    for part, seconds in parts:
        if seconds > 0:
            stretches.append((part, say.plain(begin * 100 / whole), say.plain(seconds * 100 / whole)))
            begin += seconds
    return stretches
