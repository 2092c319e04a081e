"""A tenant's billing period at a glance."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from billing.models import Verdict
from portal.web.shapes.frame import Fact, Plot

if TYPE_CHECKING:
    from portal.web.shapes.invoices import InvoiceRow
    from portal.web.shapes.jobs import JobRow


@dataclass(frozen=True, kw_only=True)
class Tile:
    label: str  # "Spend this period"
    value: str  # "$84,366.49"
    note: str  # "vs. $90,021.11 in the same days of October"
    change: str = ""  # "−6.3 %"
    direction: Literal["up", "down", ""] = ""
    href: str = ""  # where the note leads


@dataclass(frozen=True, kw_only=True)
class Series:
    """One colour of a chart, a value for each day of it."""

    name: str
    values: tuple[str, ...]  # plain decimals, "" for a day without any: only drawn, never shown
    texts: tuple[str, ...]  # the same, as shown


@dataclass(frozen=True, kw_only=True)
class Measure:
    """One thing that a chart can show: GPU-hours, or money."""

    key: str
    label: str
    series: tuple[Series, ...]  # at most seven, then "Other"; the same names in every measure
    totals: tuple[str, ...]  # per day, as shown; "" for days to come
    unit: str  # what the axis counts: "GPU-hours", "USD"
    prefix: str = ""  # before the numbers of the axis: "$"


@dataclass(frozen=True, kw_only=True)
class Chart:
    title: str
    days: tuple[str, ...]  # "22 Oct"
    measures: tuple[Measure, ...]

    @property
    def data(self) -> dict[str, object]:
        """What chart.js reads from the page."""
        return {
            "days": self.days,
            "measures": [
                {
                    "key": m.key,
                    "label": m.label,
                    "unit": m.unit,
                    "prefix": m.prefix,
                    "totals": m.totals,
                    "series": [{"name": s.name, "values": s.values, "texts": s.texts} for s in m.series],
                }
                for m in self.measures
            ],
        }

    @property
    def tables(self) -> Iterator[tuple[Measure, list[tuple[str, tuple[str, ...], str]]]]:
        """Each measure with its rows of (day, text per series, total), without the days to come."""
        for measure in self.measures:
            cells = [tuple(series.texts[day] for series in measure.series) for day in range(len(self.days))]
            days = zip(self.days, cells, measure.totals, strict=True)
            yield measure, [(day, texts, total) for day, texts, total in days if total]


@dataclass(frozen=True, kw_only=True)
class SpendRow:
    project: str
    gpu_model: str
    gpu_hours: str
    amount: str  # "" where unpriced
    percent: str  # of the period's spend, as shown: "34.5 %"
    width: str  # the same for the bar, 0..100: "34.5"
    verdict: Verdict = Verdict.CHARGED


@dataclass(frozen=True, kw_only=True)
class Due:
    """What an invoice of the period would say now, before tax."""

    rows: tuple[Fact, ...]
    total: str


@dataclass(frozen=True, kw_only=True)
class PaidRow:
    """What another tenant used that this one pays for."""

    user: str
    project: str  # "" of terms of its plan
    gpu_hours: str
    amount: str


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """What the period will come to. `value` is empty where `why` says that it is too early for one."""

    until: str  # "30 Nov 2026", the period's last day
    value: str = ""
    band: str = ""  # "from $11,204.10 to $13,020.00", "" where too few days tell
    method: str = ""
    why: str = ""
    plot: Plot | None = None
    rows: tuple[
        Fact, ...
    ] = ()  # of the table behind the plot: by day what had accrued, then what is forecast
    parts: tuple[Fact, ...] = ()  # that add up to `value`: own use, and what is paid for others where it is


@dataclass(frozen=True, kw_only=True)
class OverviewPage:
    """A tenant's billing period at a glance. Without any usage ever, `chart` is None."""

    period: str  # "November 2026"
    zone: str  # "Europe/Berlin"
    earlier: str
    later: str
    complete_through: str  # "20 Nov 2026, 08:00", "" before the first import
    tiles: tuple[Tile, ...] = ()
    chart: Chart | None = None
    forecast: Forecast | None = None
    due: Due | None = None
    spend: tuple[SpendRow, ...] = ()
    terms: tuple[Fact, ...] = ()  # fees, commitment and discounts
    spend_total: str = ""
    hours_total: str = ""
    jobs: tuple[JobRow, ...] = ()
    invoices: tuple[InvoiceRow, ...] = ()
    paid_by: str = ""  # "Paid by Physics since 1 Apr 2026", "" where it pays for itself
    pays_for: str = ""  # "Pays for Vision Lab since 1 Apr 2026; for Audio Lab since …"
    paid: tuple[PaidRow, ...] = ()
    paid_total: str = ""
    unpriced: str = ""  # "1,204 GPU-hours on MI300X": what no price covers, "" if nothing
