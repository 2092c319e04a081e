"""`report_borrowed CLUSTER`: GPU-hours on quota that queues of Kueue borrowed, and their cost, estimated."""

from __future__ import annotations

from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from django.core.management.base import CommandParser
from django.utils import timezone

from billing.reports.borrowed import BorrowedReport, as_csv, as_data, borrowed
from billing.reports.reporting import ReportError
from billing.rules.money import rounded_text
from clusters.borrowed_quota import BorrowingError
from clusters.connectors.base import ConnectorError
from portal.ops.cli import Answer, BadInputError, OperatorCommand, instant_text, moment
from portal.ops.lookups import the_cluster
from portal.sentences import sentence

HOUR = 3600
ZONE = ZoneInfo("UTC")


class Command(OperatorCommand):
    help = "Report what queues of Kueue held above their nominal quota, in GPU-hours and money: an estimate."

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("cluster")
        parser.add_argument("--from", dest="since", required=True, metavar="MOMENT", help="in UTC; inclusive")
        parser.add_argument("--to", dest="until", required=True, metavar="MOMENT", help="in UTC; exclusive")
        parser.add_argument("--csv", type=Path, metavar="FILE", help="write the rows there too")

    def answer(self, **options: Any) -> Answer:
        cluster = the_cluster(options["cluster"])
        since, until = (int(moment(options[end], ZONE).timestamp()) for end in ("since", "until"))
        try:
            report = borrowed(
                cluster, since=since, until=until, clock=lambda: int(timezone.now().timestamp())
            )
        except (ReportError, BorrowingError, ConnectorError) as error:
            raise BadInputError(sentence(error)) from error
        if options["csv"]:
            _write(options["csv"], report)
        period = {"from": _instant(since), "to": _instant(until)}
        return Answer({"cluster": cluster.name, **period, **as_data(report)}, _text(cluster.name, report))


def _write(file: Path, report: BorrowedReport) -> None:
    try:
        with file.open("wb") as target:
            target.writelines(as_csv(report))
    except OSError as error:
        raise BadInputError(f"{file} cannot be written: {error.strerror}.") from error


def _text(cluster: str, report: BorrowedReport) -> str:
    period = f"{_instant(report.since)} to {_instant(report.until)}"
    lines = [f"{cluster}, {period}: GPU-hours on borrowed quota, estimated", ""]
    for queue in report.queues:
        lines.append(
            f"{queue.queue}: {_hours(Fraction(queue.above))} GPU-hours above its nominal quota"
            + (f", {_hours(Fraction(queue.nobodys))} of them held by no pod" if queue.nobodys else "")
        )
        for row in report.rows:
            if row.queue == queue.queue:
                cost = f"{rounded_text(row.cost, 2)} {row.currency}" if row.cost is not None else "–"
                lines.append(
                    f"    {row.tenant or '–':<30} {row.standing.value:<10} {_hours(row.seconds):>14} {cost:>18}"
                )
    return "\n".join([*lines, *([""] if report.notes else []), *report.notes])


def _hours(seconds: Fraction) -> str:
    return rounded_text(seconds / HOUR, 2)


def _instant(second: int) -> str:
    return instant_text(datetime.fromtimestamp(second, UTC))
