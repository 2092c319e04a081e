"""`report_cost CLUSTER`: allocated, effective, waste and unknown, in GPU-hours and money."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar
from zoneinfo import ZoneInfo

from django.core.management.base import CommandParser

from billing.reports.margin import Margin, MarginError, by_models, margin
from billing.reports.reporting import MOST_PODS, ReportError, of_cluster
from billing.reports.rounded_report import rounded_report
from billing.reports.shapes import By, Report, Row, Split
from billing.reports.table import REST, as_csv, as_data, digits
from billing.rules.money import rounded_text
from clusters.models import Cluster
from portal.excerpt import quoted
from portal.ops.cli import Answer, BadInputError, OperatorCommand, instant_text, moment
from portal.ops.lookups import the_cluster, the_tenant
from portal.sentences import sentence

HOUR = 3600
ZONE = ZoneInfo("UTC")
CAPACITY = (
    ("down", "down"),
    ("drained", "drained"),
    ("idle_no_demand", "idle with nothing waiting"),
    ("idle_jobs_waiting", "idle while jobs waited"),
    ("allocated", "allocated"),
)
AMOUNT = re.compile(r"\d{1,12}(?:\.\d{1,12})?", re.ASCII)


class Command(OperatorCommand):
    help = "Report what GPUs were held for: allocated, effective, waste and unknown, in GPU-hours and money."
    refusals: ClassVar[tuple[type[Exception], ...]] = (MarginError,)

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("cluster")
        parser.add_argument("--from", dest="since", required=True, metavar="MOMENT", help="in UTC; inclusive")
        parser.add_argument("--to", dest="until", required=True, metavar="MOMENT", help="in UTC; exclusive")
        parser.add_argument("--by", choices=[by.value for by in By], default=By.TENANT.value)
        parser.add_argument("--tenant", metavar="SLUG", help="this tenant's use alone")
        parser.add_argument("--limit", type=int, default=MOST_PODS, help="of pods, how many are rows")
        parser.add_argument(
            "--top-jobs", type=int, default=0, help="name that many of each row's most expensive jobs"
        )
        parser.add_argument(
            "--operating-cost",
            metavar="AMOUNT",
            help="what a GPU-hour of capacity costs to run: adds the margin",
        )
        parser.add_argument(
            "--margin",
            action="store_true",
            help="add the margin, by the operating costs that were entered for each GPU model",
        )
        parser.add_argument("--csv", type=Path, metavar="FILE", help="write the rows there too")

    def answer(self, **options: Any) -> Answer:
        cluster = the_cluster(options["cluster"])
        if options["limit"] < 1 or options["top_jobs"] < 0:
            raise BadInputError("--limit takes a number from 1 on, --top-jobs one from 0 on.")
        cost = _amount(options["operating_cost"]) if options["operating_cost"] is not None else None
        if cost is not None and options["margin"]:
            raise BadInputError("Give --operating-cost, or --margin for the costs that were entered.")
        report = _report(cluster, options)
        if options["margin"]:
            left: Margin | None = by_models(report, cluster)
        else:
            left = margin(report, operating_cost=cost) if cost is not None else None
        data = {
            "cluster": cluster.name,
            "from": _instant(report.since),
            "to": _instant(report.until),
            "tenant": options["tenant"],
            **_spelled(as_data(report)),
            "margin": _margin(left) if left is not None else None,
        }
        if options["csv"]:
            _write(options["csv"], report)
        return Answer(data, _text(cluster.name, report, data))


def _report(cluster: Cluster, options: dict[str, Any]) -> Report:
    try:
        return of_cluster(
            cluster,
            since=int(moment(options["since"], ZONE).timestamp()),
            until=int(moment(options["until"], ZONE).timestamp()),
            by=By(options["by"]),
            tenant=the_tenant(options["tenant"]) if options["tenant"] else None,
            limit=options["limit"],
            top_jobs=options["top_jobs"],
        )
    except ReportError as error:
        raise BadInputError(sentence(error)) from error


def _amount(text: str) -> Fraction:
    if not AMOUNT.fullmatch(text):
        raise BadInputError(f"{quoted(text)} is no cost of a GPU-hour: write it like 1.00.")
    return Fraction(text)


def _write(file: Path, report: Report) -> None:
    try:
        with file.open("wb") as target:
            target.writelines(as_csv(report))
    except OSError as error:
        raise BadInputError(f"{file} cannot be written: {error.strerror}.") from error


def _spelled(data: dict[str, Any]) -> dict[str, Any]:
    """Instants as the other commands write them."""
    if data["capacity"]:
        data["capacity"] |= {end: _instant(data["capacity"][end]) for end in ("from", "to")}
    return data


def _instant(second: int) -> str:
    return instant_text(datetime.fromtimestamp(second, UTC))


def _margin(cluster_margin: Margin) -> dict[str, str]:
    return {
        "currency": cluster_margin.currency,
        "revenue": digits(cluster_margin.revenue),
        "operating_cost": digits(cluster_margin.operating_cost),
        "margin": digits(cluster_margin.margin),
    }


def _text(cluster: str, report: Report, data: dict[str, Any]) -> str:
    lines = [f"{cluster}, {data['from']} to {data['to']}, by {report.by}: GPU-hours, then their cost", ""]
    lines.append(_line("", "", "allocated", "effective", "waste", "unknown", "covered"))
    shown = rounded_report(report)
    for row, rounded in zip(report.rows, shown.rows, strict=True):
        lines += _row(row, rounded)
    lines.append(_hours("Total", f"{report.jobs:,} jobs", shown.seconds, report.seconds.coverage))
    lines += [_numbers("", code, money) for code, money in shown.money.items()]
    if shown.capacity:
        nodes = as_data(shown)["capacity"]["gpu_hours"]
        parts = " + ".join(f"{_short(nodes[part])} {name}" for part, name in CAPACITY)
        lines += ["", f"Capacity: {_short(nodes['total'])} GPU-hours = {parts}"]
    if data["margin"]:
        of = {name: _short(text) for name, text in data["margin"].items() if name != "currency"}
        currency = data["margin"]["currency"]
        sums = f"{of['revenue']} charged − {of['operating_cost']} to run"
        lines += ["", f"Margin: {of['margin']} {currency} = {sums}"]
    return "\n".join([*lines, *([""] if report.notes else []), *report.notes])


def _row(row: Row, rounded: Row) -> list[str]:
    name = REST if row.rest else " / ".join(text or "–" for text in row.labels.values())
    lines = [_hours(name, row.standing.value, rounded.seconds, row.seconds.coverage)]
    if rounded.money is not None:
        lines.append(_numbers("", row.currency, rounded.money))
    lines += [
        f"    {job.pod} {job.name} of {job.user}: {rounded_text(job.cost, 2)} {row.currency}"
        for job in row.top_jobs
    ]
    return lines


def _hours(name: str, what: str, seconds: Split, coverage: Fraction | None) -> str:
    covered = f"{rounded_text(coverage * 100, 1)} %" if coverage is not None else ""
    return _numbers(name, what, seconds * Fraction(1, HOUR), covered)


def _numbers(name: str, what: str, split: Split, covered: str = "") -> str:
    parts = [split.allocated, split.effective, split.waste, split.unknown]
    return _line(name, what, *(f"{Decimal(rounded_text(part, 2)):,.2f}" for part in parts), covered)


def _line(name: str, what: str, *numbers: str) -> str:
    return f"{name:<40} {what:<10}" + "".join(f" {number:>14}" for number in numbers)


def _short(text: str) -> str:
    return f"{Decimal(rounded_text(Fraction(text), 2)):,.2f}"
