"""`import_usage CLUSTER FILE`: take usage in from an accounting file."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar
from zoneinfo import ZoneInfo

from django.core.management.base import CommandParser

from billing import intake
from clusters.connectors import sacct
from clusters.connectors.base import ConnectorError
from clusters.models import Cluster
from portal.audit import acting_as
from portal.ops.cli import Answer, BadInputError, OperatorCommand, Progress, instant_text, moment


class Command(OperatorCommand):
    help = "Import usage from an accounting file. A file that was imported before changes nothing."
    refusals: ClassVar[tuple[type[Exception], ...]] = (ConnectorError,)

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("cluster", metavar="CLUSTER")
        parser.add_argument("file", metavar="FILE", type=Path, help="plain or gzip")
        parser.add_argument("--format", choices=["sacct"], default="sacct", help="what printed the file")
        parser.add_argument(
            "--as-of",
            metavar="T",
            help="the moment up to which the source had looked; moves the watermark. "
            "Default: the latest moment that the file proves",
        )
        parser.add_argument(
            "--columns", help="names for a file without header, comma-separated; '-' ignores one"
        )
        parser.add_argument("--delimiter", default="|", help="what stands between the columns")

    def answer(self, **options: Any) -> Answer:
        cluster = Cluster.objects.filter(name=options["cluster"]).first()
        if cluster is None:
            raise BadInputError(
                f"There is no cluster {options['cluster']!r}; describe it in a file for `apply`."
            )
        now = datetime.now(UTC).replace(microsecond=0)
        as_of = moment(options["as_of"], ZoneInfo(cluster.timezone)) if options["as_of"] else None
        if as_of is not None and as_of > now:
            raise BadInputError(f"--as-of {instant_text(as_of)} lies in the future.")
        columns = options["columns"].split(",") if options["columns"] else None
        export = sacct.open_export(
            options["file"], zone=ZoneInfo(cluster.timezone), columns=columns, delimiter=options["delimiter"]
        )
        with acting_as("import_usage", why=options["file"].name), Progress("Rows taken in") as progress:
            taken = intake.take_in(
                cluster=cluster,
                rows=export.rows(),
                reading=export.reading,
                source=options["file"].name,
                moment=now,
                as_of=as_of,
                progress=lambda stored: progress.to(stored.read),
            )
        return _answer(cluster.name, options["file"].name, taken, export.reading.notes)


def _answer(cluster: str, file: str, taken: intake.TakenIn, notes: list[str]) -> Answer:
    stored = taken.stored
    data = {
        "cluster": cluster,
        "file": file,
        "read": stored.read,
        "new": stored.new,
        "unchanged": stored.unchanged,
        "revised": stored.revised,
        "quarantined": stored.quarantined,
        "steps": taken.steps,
        "as_of": taken.as_of,
        "notes": notes,
    }
    changed = stored.new or stored.revised or stored.quarantined
    head = (
        f"{file} → {cluster}: {stored.read:,} rows read: {stored.new:,} new, {stored.unchanged:,} unchanged, "
        f"{stored.revised:,} revised, {stored.quarantined:,} quarantined."
    )
    lines = [head]
    if not changed:
        lines.append("Nothing changed: all of it was known already.")
    if taken.steps:
        lines.append(f"{taken.steps:,} job-step rows were passed over: their time is inside their job's.")
    if taken.as_of is not None:
        lines.append(f"It proves usage through {instant_text(taken.as_of)}.")
    if stored.quarantined:
        lines.append(
            "Quarantined rows wait with their reason on the operator's quarantine page and in the admin."
        )
    return Answer(data, "\n".join(lines + notes))
