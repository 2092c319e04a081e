"""`import_usage CLUSTER FILE`: take usage in from an accounting file, or from each that comes to a directory."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar
from zoneinfo import ZoneInfo

from django.core.management.base import CommandParser

from billing.rating import ingest
from clusters import watermark
from clusters.connectors.accounting import formats
from clusters.connectors.accounting.formats import Export
from clusters.connectors.base import ConnectorError
from clusters.connectors.mig import own_shares
from clusters.ledger import Stored
from clusters.meters import load_units
from clusters.models import Cluster, ClusterKind, FileFormat
from clusters.sources import refuse_twice
from portal.core.audit import acting_as
from portal.ops import watch_directory
from portal.ops.cli import Answer, BadInputError, OperatorCommand, Progress, instant_text, moment
from portal.ops.lookups import the_cluster

SETTLE = 10  # seconds


class Command(OperatorCommand):
    help = "Import usage from an accounting file. A file that was imported before changes nothing."
    refusals: ClassVar[tuple[type[Exception], ...]] = (ConnectorError,)

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("cluster", metavar="CLUSTER")
        parser.add_argument("file", metavar="FILE", type=Path, nargs="?", help="plain or gzip")
        parser.add_argument(
            "--format", choices=formats.FORMATS, default="sacct", help="what printed the file"
        )
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
        parser.add_argument(
            "--follow",
            metavar="DIR",
            type=Path,
            help="instead of FILE: take in each file that comes to this directory, until Ctrl-C",
        )
        parser.add_argument("--once", action="store_true", help="with --follow: what is there now, then end")
        parser.add_argument(
            "--settle",
            metavar="SECONDS",
            type=int,
            help="with --follow: how long a file must be unchanged to count as complete (default 10); "
            "0 where files get their name when they are complete",
        )

    def answer(self, **options: Any) -> Answer:
        _check(options)
        cluster = the_cluster(options["cluster"])
        if cluster.kind == ClusterKind.PUSH:
            raise BadInputError(
                f"{cluster.name} is fed by pushed usage: a job of a file would be billed beside it. Import into a "
                "cluster of the kind import."
            )
        if options["follow"]:
            return _follow(cluster, options)
        return import_file(cluster, options["file"], options)


def _check(options: dict[str, Any]) -> None:
    if bool(options["file"]) == bool(options["follow"]):
        raise BadInputError("Give a FILE, or a directory with --follow.")
    if options["follow"] and options["as_of"]:
        raise BadInputError(
            "--as-of is of one file: with --follow, a file's name says it, as lab.as-of-2026-03-01T020000Z."
        )
    if not options["follow"] and (options["once"] or options["settle"] is not None):
        raise BadInputError("--once and --settle go with --follow.")
    if (options["settle"] or 0) < 0:
        raise BadInputError("--settle is a number of seconds, 0 or more.")


def _follow(cluster: Cluster, options: dict[str, Any]) -> Answer:
    stop = watch_directory.Stop()
    follower = watch_directory.Follower(
        options["follow"],
        take=lambda path: import_file(
            cluster, path, {**options, "as_of": watch_directory.as_of(path.name)}, between=stop.check
        ),
        say=lambda line: print(line, file=sys.stderr, flush=True),
        settle=SETTLE if options["settle"] is None else options["settle"],
        stop=stop,
    )
    with watch_directory.alone(options["follow"], cluster.name), stop.on_signals():
        follower.run(once=options["once"])
    return watch_directory.summary(follower, cluster=cluster.name, once=options["once"])


def import_file(
    cluster: Cluster, path: Path, options: dict[str, Any], *, between: Callable[[], None] = lambda: None
) -> Answer:
    """Import one file; `between` is called after each batch."""
    now = datetime.now(UTC).replace(microsecond=0)
    as_of = moment(options["as_of"], ZoneInfo(cluster.timezone)) if options["as_of"] else None
    if as_of is not None and as_of > now:
        raise BadInputError(f"Nobody can have looked as far as {instant_text(as_of)}: it lies in the future.")
    _refuse_later_than_file(path, as_of)
    export = _opened(path, cluster, options)
    with acting_as("import_usage", why=path.name), Progress("Rows taken in") as progress:

        def stored(so_far: Stored) -> None:
            progress.to(so_far.read)
            between()

        ingestion = ingest.ingest(
            cluster=cluster,
            rows=watch_directory.whole(export.rows()) if options["follow"] and as_of else export.rows(),
            reading=export.reading,
            source=path.name,
            moment=now,
            as_of=as_of,
            progress=stored,
        )
    return _answer(cluster.name, path.name, ingestion, export.reading.notes)


def _refuse_later_than_file(path: Path, as_of: datetime | None) -> None:
    """A file tells nothing of what came after it was written, by whichever clock that was."""
    if as_of is None or not path.is_file():
        return
    written = datetime.fromtimestamp(int(path.stat().st_mtime), UTC)
    if as_of > written + watermark.TOLERANCE:
        raise BadInputError(
            f"{path.name} was written at {instant_text(written)}, so it cannot prove usage through "
            f"{instant_text(as_of)}: say how far sacct had looked, and check the clocks of both machines."
        )


def _opened(path: Path, cluster: Cluster, options: dict[str, Any]) -> Export:
    refuse_twice(cluster, FileFormat(options["format"]))
    return formats.open_export(
        path,
        options["format"],
        zone=ZoneInfo(cluster.timezone),
        columns=options["columns"].split(",") if options["columns"] else None,
        delimiter=options["delimiter"],
        shares=own_shares(cluster.shares, "shares"),
        meters=load_units(),
    )


def _answer(cluster: str, file: str, ingestion: ingest.IngestResult, notes: list[str]) -> Answer:
    stored = ingestion.stored
    data = {
        "cluster": cluster,
        "file": file,
        "read": stored.read,
        "new": stored.new,
        "unchanged": stored.unchanged,
        "revised": stored.revised,
        "quarantined": stored.quarantined,
        "steps": ingestion.steps,
        "as_of": ingestion.as_of,
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
    if ingestion.steps:
        lines.append(f"{ingestion.steps:,} job-step rows were passed over: their time is inside their job's.")
    if ingestion.as_of is not None:
        lines.append(f"It proves usage through {instant_text(ingestion.as_of)}.")
    if stored.quarantined:
        lines.append(
            "Quarantined rows wait with their reason on the operator's page Quarantine and in the administration."
        )
    return Answer(data, "\n".join(lines + notes))
