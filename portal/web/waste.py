"""What was held and not used: findings with advice, where the GPU-hours went, and the jobs behind a finding."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from billing.reports.capacity_use import OF_ALLOCATED, CapacityUse, Part
from billing.reports.rounded_report import rounded_use
from billing.reports.shapes import Report, Split
from billing.reports.waste import Finding, Kind, Waste
from billing.rules.money import Money
from billing.rules.rounded_sums import HOURS, minor_unit
from portal.web import format as say

TITLES = {
    Kind.ZERO_USE: gettext_noop("GPUs held and never used"),
    Kind.IDLE_TAIL: gettext_noop("Long idle tails"),
    Kind.IDLE_BETWEEN: gettext_noop("Idle before and between work"),
    Kind.TOO_MANY_GPUS: gettext_noop("More GPUs than needed"),
    Kind.TOO_LARGE_MODEL: gettext_noop("A more powerful model than needed"),
    Kind.TIME_LIMIT: gettext_noop("Time limits far above use"),
    Kind.WAITED: gettext_noop("Idle while jobs waited"),
}
ADVICE = {
    Kind.ZERO_USE: gettext_noop("End idle notebooks, and ask for GPUs only where the code uses them."),
    Kind.IDLE_TAIL: gettext_noop("Have the job end when its work is done, or after an hour without work."),
    Kind.IDLE_BETWEEN: gettext_noop("Load data and test the set-up in a job without GPUs."),
    Kind.TOO_MANY_GPUS: gettext_noop("Ask for fewer GPUs: even the busiest hour would have fit on fewer."),
    Kind.TOO_LARGE_MODEL: gettext_noop(
        "Try the next cheaper model: no hour filled more than 30 % of the GPU. Mind its memory."
    ),
    Kind.TIME_LIMIT: gettext_noop("Ask for less time: it costs nothing, and shorter jobs start earlier."),
    Kind.WAITED: gettext_noop(
        "Look for fragmentation, limits and priorities: these GPUs were free while jobs waited for their model."
    ),
}
PARTS = {
    Part.CAPACITY: gettext_noop("Capacity"),
    Part.DOWN: gettext_noop("Down or drained"),
    Part.NO_DEMAND: gettext_noop("Idle, no demand"),
    Part.WAITED: gettext_noop("Idle while jobs waited"),
    Part.ALLOCATED: gettext_noop("Allocated"),
    Part.EFFECTIVE: gettext_noop("Effective"),
    Part.ZERO: gettext_noop("Zero utilization"),
    Part.LOW: gettext_noop("Low utilization"),
    Part.UNKNOWN: gettext_noop("Unknown"),
}


@dataclass(frozen=True, kw_only=True)
class FindingRow:
    title: str
    advice: str
    jobs: str  # "3 jobs"
    seconds: Fraction  # GPU-seconds
    money: Sequence[Money]  # in the period; empty where none can be saved
    a_month: Sequence[Money]
    url: str  # of the jobs behind it
    width: str  # of its bar, in per cent of the first one's


@dataclass(frozen=True, kw_only=True)
class PartRow:
    """One part of the GPU-hours. `depth` 1 are parts of what is allocated."""

    label: str
    depth: int
    hours: str
    share: str
    money: str


def finding_rows(waste: Waste, address: Callable[[Kind], str]) -> list[FindingRow]:
    """Ranked by money a month."""
    most = max((amount for one in waste.findings for amount in one.money.values()), default=Fraction(0))
    return [_finding(one, waste, address(one.kind), most) for one in waste.findings]


def _finding(one: Finding, waste: Waste, url: str, most: Fraction) -> FindingRow:
    first = max(one.money.values(), default=Fraction(0))
    return FindingRow(
        title=_(TITLES[one.kind]),
        advice=_(ADVICE[one.kind]),
        jobs=say.counted(one.jobs, "job"),
        seconds=one.seconds,
        money=moneys(one.money),
        a_month=moneys(one.a_month(waste.length)),
        url=url,
        width=say.plain(first * 100 / most) if most else "0",
    )


def moneys(amounts: Mapping[str, Fraction]) -> list[Money]:
    return [Money(amount, code) for code, amount in sorted(amounts.items())]


def capacity_parts(use: CapacityUse) -> list[PartRow]:
    """Of a cluster: where its capacity went."""
    seconds = {part: use.seconds[part] for part in Part}
    money = {use.currency: {part: use.money[part] for part in Part}} if use.money is not None else {}
    return _part_rows(seconds, money, whole=Part.CAPACITY)


def allocated_parts(report: Report, waste: Waste) -> list[PartRow]:
    """Of a tenant: where what it held went. Both are of the same days."""
    money = {code: _allocated(of, waste.zero.get(code, Fraction(0))) for code, of in report.money.items()}
    return _part_rows(_allocated(report.seconds, waste.zero_seconds), money, whole=Part.ALLOCATED)


def _allocated(split: Split, zero: Fraction) -> dict[Part, Fraction]:
    return {
        Part.ALLOCATED: split.allocated,
        Part.EFFECTIVE: split.effective,
        Part.ZERO: zero,
        Part.LOW: split.waste - zero,
        Part.UNKNOWN: split.unknown,
    }


def _part_rows(
    seconds: Mapping[Part, Fraction], money: Mapping[str, Mapping[Part, Fraction]], *, whole: Part
) -> list[PartRow]:
    """They add up as they are shown."""
    shown = rounded_use(seconds, HOURS)
    amounts = {code: rounded_use(of, minor_unit(code)) for code, of in money.items()}
    return [
        PartRow(
            label=_(PARTS[part]),
            depth=int(part in OF_ALLOCATED),
            hours=say.part_hours(shown[part], seconds[part]),
            share=say.percent(seconds[part], seconds[whole]),
            money=say.sums(moneys({code: of[part] for code, of in amounts.items()})),
        )
        for part in Part
        if part in seconds
    ]


def capacity_note(use: CapacityUse) -> str:
    """Which hours have no money, "" where all have."""
    if use.money is None:
        return _("Money is not shown: charges are in several currencies, or there are none.")
    if use.without_price:
        models = ", ".join(model or _("(unknown model)") for model in use.without_price)
        return _("Nothing was charged for {models} in this period: its hours count without money.").format(
            models=models
        )
    return ""
