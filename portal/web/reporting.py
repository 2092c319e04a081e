"""A report's rows, tiles and bars, ready to print."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from fractions import Fraction
from zoneinfo import ZoneInfo

from billing.reports import margin as margins
from billing.reports.margin import MarginError
from billing.reports.shapes import ZERO, By, ModelCapacity, Report, Row, Split, Standing
from billing.rules.money import Money
from clusters.models import Cluster
from portal.web import format as say
from portal.web.shapes import Badge, NodesRow, SplitRow, Stretch, Tile

MOST_ROWS = 100
STANDINGS = {
    Standing.WAIVED: Badge(label="Not charged", tone="muted"),
    Standing.UNPRICED: Badge(label="No price", tone="late"),
    Standing.UNASSIGNED: Badge(label="No owner", tone="wait"),
}
SOURCES = {
    "device": "its devices",
    "node": "its node’s average",
    "model": "the model’s average",
    "cluster": "the cluster’s average",
}
NAMELESS = {
    By.TENANT: "Nobody’s",
    By.PROJECT: "Nobody’s",
    By.NAMESPACE: "(no account)",
    By.USER: "(no user)",
    By.MODEL: "(model not told)",
    By.POD: "(no number)",
}
PARTS = ("effective", "waste", "unknown")


def tiles(report: Report) -> tuple[Tile, ...]:
    """What was held, and what came of it."""
    split = report.seconds
    hours = _hours(split)
    notes = {"allocated": f"{_money(report, 'allocated')}, {say.counted(report.jobs, 'job')}"}
    for part in PARTS:
        share = say.percent(getattr(split, part), split.allocated)
        text = f"{_money(report, part)}, {share} of it"
        notes[part] = "no telemetry tells" if hours[part] == say.NOTHING else text
    return tuple(
        Tile(label=f"{part.capitalize()}, GPU-hours", value=hours[part], note=note)
        for part, note in notes.items()
    )


def margin_of(report: Report, cluster: Cluster) -> tuple[tuple[Tile, ...], str]:
    """Tiles of what is charged, costs to run and is left, or the sentence why that cannot be told.

    Neither where no operating cost was entered.
    """
    if not margins.known(cluster):
        return (), ""
    try:
        cluster_margin = margins.by_models(report, cluster)
    except MarginError as error:
        return (), str(error)
    share = say.percent(cluster_margin.margin, cluster_margin.revenue) if cluster_margin.revenue > 0 else ""
    tiles = (
        ("Charged", cluster_margin.revenue, "at unit prices, processors and memory included"),
        ("Costs to run", cluster_margin.operating_cost, "all capacity, idle or not"),
        ("Margin", cluster_margin.margin, f"{share} of what is charged" if share else ""),
    )
    return tuple(
        Tile(label=label, value=say.money(Money(amount, cluster_margin.currency)), note=note)
        for label, amount, note in tiles
    ), ""


def shown(report: Report, tenants: Mapping[str, str]) -> tuple[tuple[SplitRow, ...], str]:
    """The first rows that held a GPU, and how many are in the CSV beyond them; `tenants` are names by slug."""
    gpu_rows = [row for row in report.rows if row.seconds.allocated]
    rows = gpu_rows[:MOST_ROWS]
    longest = max((row.seconds.allocated for row in rows), default=ZERO)
    left = len(gpu_rows) - len(rows)
    more = f"{say.counted(left, 'more row')} {'is' if left == 1 else 'are'} in the CSV." if left else ""
    return tuple(_row(row, report, longest, tenants) for row in rows), more


def total(report: Report) -> SplitRow:
    split = report.seconds
    return SplitRow(
        name="Total",
        detail="",
        standing=None,
        bar=_bar(split),
        width="100",
        **_hours(split),
        cost=_money(report, "allocated"),
        wasted=_money(report, "waste") if split.covered else "",
        **_shares(split),
        sources="",
        jobs=say.whole(report.jobs),
    )


def nodes(report: Report) -> tuple[NodesRow, ...]:
    """By model what nodes had to give, with their sum where there are several."""
    if report.capacity is None:
        return ()
    of = list(report.capacity.models)
    rows = [_nodes(one.gpu_model or "(model not told)", one) for one in of]
    return (*rows, _nodes("Total", report.capacity.whole)) if len(rows) > 1 else tuple(rows)


def nodes_of(report: Report, zone: ZoneInfo) -> str:
    """The part of the period that nodes were looked at in, "" where it is all of it."""
    capacity = report.capacity
    if capacity is None or (capacity.since, capacity.until) == (report.since, report.until):
        return ""
    ends = (say.moment(datetime.fromtimestamp(at, UTC), zone) for at in (capacity.since, capacity.until))
    return " – ".join(ends)


def _row(row: Row, report: Report, longest: Fraction, tenants: Mapping[str, str]) -> SplitRow:
    name, detail = _named(row, report.by, tenants)
    money = row.money
    return SplitRow(
        name=name,
        detail=detail,
        standing=STANDINGS.get(row.standing),
        bar=_bar(row.seconds),
        width=say.plain(row.seconds.allocated * 100 / longest) if longest else "0",
        **_hours(row.seconds),
        cost=say.money(Money(money.allocated, row.currency)) if money else "",
        wasted=say.money(Money(money.waste, row.currency)) if money and money.covered else "",
        **_shares(row.seconds),
        sources=", ".join(dict.fromkeys(SOURCES.get(of.source, of.source) for of in row.sources)),
        jobs=say.whole(row.jobs),
    )


def _named(row: Row, by: By, tenants: Mapping[str, str]) -> tuple[str, str]:
    if row.rest:
        return "All others", ""
    of = row.labels
    match by:
        case By.POD:
            name = of["name"] if of["name"] != of["pod"] else ""
            user = f"of {of['user']}" if of["user"] else ""
            parts = [name, user, f"in {of['namespace'] or '(no account)'}"]
            return of["pod"] or NAMELESS[by], " ".join(filter(None, parts))
        case By.PROJECT:
            return of["project"] or NAMELESS[by], of["tenant"]
        case By.NAMESPACE:
            return of["namespace"] or NAMELESS[by], of["cluster"]
        case By.TENANT if of["tenant"] in tenants:
            return tenants[of["tenant"]], of["tenant"]
        case _:
            (name,) = of.values()
            return name or NAMELESS[by], ""


def _hours(split: Split) -> dict[str, str]:
    """What was not covered at all shows no zeros: nobody knows that nothing was done."""
    texts = {part: say.hours(getattr(split, part)) for part in ("allocated", *PARTS)}
    return texts if split.covered else texts | dict.fromkeys(("effective", "waste"), say.NOTHING)


def _shares(split: Split) -> dict[str, str]:
    return {
        "utilisation": say.percent(split.effective, split.covered),
        "coverage": say.percent(split.covered, split.allocated),
    }


def _money(report: Report, part: str) -> str:
    return say.sums(Money(getattr(money, part), code) for code, money in report.money.items())


def _bar(split: Split) -> tuple[Stretch, ...]:
    return _stretches([(part, getattr(split, part)) for part in PARTS], split.allocated)


def _nodes(name: str, of: ModelCapacity) -> NodesRow:
    parts = [
        ("effective", of.allocated),
        ("idle", max(of.idle, ZERO)),
        ("drained", of.drained),
        ("down", of.down),
    ]
    return NodesRow(
        model=name,
        bar=_stretches(parts, sum((seconds for _, seconds in parts), ZERO)),
        total=say.hours(of.total),
        down=say.hours(of.down),
        drained=say.hours(of.drained),
        idle=say.hours(of.idle),
        waited=say.hours(of.waited) if of.waited else "",
        allocated=say.hours(of.allocated),
    )


def _stretches(parts: Iterable[tuple[str, Fraction]], whole: Fraction) -> tuple[Stretch, ...]:
    """Side by side, those that are not empty."""
    stretches, before = [], ZERO
    for part, seconds in parts:
        if seconds > 0:
            stretches.append(
                Stretch(
                    part=part,  # type: ignore[arg-type]  # one of them: callers name no other
                    x=say.plain(before * 100 / whole),
                    width=say.plain(seconds * 100 / whole),
                )
            )
            before += seconds
    return tuple(stretches)
