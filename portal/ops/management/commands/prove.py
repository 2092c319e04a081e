"""`prove [YYYY-MM]`: show that every second that was allocated is accounted for, exactly once."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, ClassVar
from zoneinfo import ZoneInfo

from django.core.management.base import CommandParser

from billing.models import MonthProof, SealedMonth
from billing.proof import checks, months
from billing.proof.summary import UNITS, as_data, quantity_text, units_of
from billing.proof.sums import PARTS, seconds_text
from billing.quotas.block_proof import prove_blocks
from billing.quotas.proof import prove_quotas, prove_reservations
from billing.sealed_months.verify import NAME, prove_files
from clusters import comparison, sources, validation
from clusters.comparison import Difference, RecordedUsage
from clusters.connectors.accounting import formats
from clusters.connectors.base import ConnectorError, EnergyHour, Row, UsageFact
from clusters.connectors.mig import own_shares
from clusters.energy import EnergySums
from clusters.meters import load_units
from clusters.models import Cluster, Connection
from portal.core.one_sight import one_sight
from portal.excerpt import quoted
from portal.ops.cli import Answer, BadInputError, OperatorCommand, Progress, utc_month

MOST_HOURS = 24 * 31


class Command(OperatorCommand):
    help = (
        "Prove the sums: allocated = billed + waived + pending + unassigned. Recomputes the months that were "
        "written to since they were proved. Exit code 1 if a sum is open."
    )
    refusals: ClassVar[tuple[type[Exception], ...]] = (ConnectorError,)

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "month", metavar="YYYY-MM", nargs="?", help="a UTC month; all time where left out"
        )
        parser.add_argument("--full", action="store_true", help="recompute all months")
        parser.add_argument(
            "--source", metavar="FILE", type=Path, help="read the scheduler's file again and compare"
        )
        parser.add_argument(
            "--format", choices=formats.FORMATS, default="sacct", help="what printed --source"
        )
        parser.add_argument(
            "--live", action="store_true", help="ask the scheduler again for what it told last, and compare"
        )
        parser.add_argument(
            "--hours", type=int, default=24, help="with --live: before the watermark (default 24)"
        )
        parser.add_argument("--cluster", help="which is compared, where there are several clusters")

    def answer(self, **options: Any) -> Answer:
        if options["live"] and options["source"]:
            raise BadInputError("Compare with --source, or with --live.")
        if not 1 <= options["hours"] <= MOST_HOURS:
            raise BadInputError(f"--hours is a whole number from 1 to {MOST_HOURS}.")
        month = utc_month(options["month"]) if options["month"] else None
        with Progress("Records proved") as progress:
            moment = datetime.now(UTC).replace(microsecond=0)
            proof = checks.prove(month=month, full=options["full"], moment=moment, progress=progress.add)
        source = None
        if options["source"]:
            source = _compare_file(options["source"], options["format"], options["cluster"])
        elif options["live"]:
            source = _compare_live(options["cluster"], hours=options["hours"])
        if month is None:
            with one_sight():
                more = [prove(moment=moment) for prove in (prove_quotas, prove_reservations, prove_blocks)]
            if SealedMonth.objects.exists():
                more.append(prove_files())
            proof = replace(proof, checks=[*proof.checks, *more])
        holds = proof.holds and not (source and source["differences"])
        data = {"month": options["month"], "holds": holds, **as_data(proof), "source": source}
        data["months"] = months.as_data(proof.recomputed)
        text = "\n".join([*_months(proof.recomputed), _text(proof, source, holds=holds)])
        return Answer(data, text, 0 if holds else 1)


def _months(recomputed: Collection[date]) -> list[str]:
    """When each month was recomputed, just now or before, and what its proof named."""
    lines = []
    for proof in MonthProof.objects.order_by("-month"):
        when = (
            "now"
            if proof.month in recomputed
            else f"on {proof.computed_at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
        )
        lines.append(f"{proof}, recomputed {when}: {'NO' if proof.broken else 'yes'}")
        lines += [f"  {place}" for place in proof.broken]
    return lines


def _named(resource: str, units: dict[str, str]) -> str:
    """`GPU-seconds`; of a declared meter its name, too: two may have one unit."""
    return units[resource] if resource in UNITS else f"{resource} in {units[resource]}"


def _text(proof: checks.Proof, source: dict[str, Any] | None, *, holds: bool) -> str:
    lines, units = [], units_of(proof)
    for (cluster, resource), row in proof.sums.items():
        parts = {part: quantity_text(resource, row.parts[part]) for part in PARTS}
        sign = "=" if not row.difference else "≠"
        added = " + ".join(f"{parts[part]} {part}" for part in PARTS[1:])
        whole = f"{parts['allocated']} {'allocated' if resource in UNITS else 'received'}"
        lines.append(f"{cluster}, {_named(resource, units)}: {whole} {sign} {added}")
        if row.unpriced:
            lines.append(f"  of the pending, {quantity_text(resource, row.unpriced)} have no price")
    lines += [
        f"{cluster}: {rows:,} {'row' if rows == 1 else 'rows'} in quarantine"
        for cluster, rows in proof.quarantined.items()
    ]
    for check in proof.checks:
        lines.append(f"{check.name}: {'yes' if not check.broken else 'NO'}")
        lines += [f"  {place}" for place in check.broken]
    if source:
        lines.append(
            f"{source['file']}: {source['facts']:,} facts, {source['differing']:,} differ from the ledger"
        )
        if source["running"]:
            lines.append(
                f"  {source['running']:,} of them ran or waited then: compared up to the second that both saw"
            )
        lines += [f"  {difference}" for difference in source["differences"]]
    lines.append(_verdict(proof, same=holds or not proof.holds))
    return "\n".join(lines)


def _verdict(proof: checks.Proof, *, same: bool) -> str:
    if (
        not proof.holds
        and replace(proof, checks=[check for check in proof.checks if check.name != NAME]).holds
    ):
        return (
            "Every sum closes, but files of sealed months are not as they were: bring them back from a copy, and see "
            "that SEALED_MONTHS_DIRECTORY is set."
        )
    if not proof.holds and proof.rerating:
        changes = "change" if proof.rerating == 1 else "changes"
        return (
            f"A sum does not close yet: {proof.rerating:,} {changes} of ownership or prices wait in the outbox, and "
            "what they touch is not rated again yet. See that a worker runs and prove again then; a sum that is open "
            "still is a bug."
        )
    if not proof.holds:
        return "A sum does not close: that is a bug, please report it."
    return (
        "Every sum closes."
        if same
        else "Every sum closes, but the source says otherwise: import a newer file, or read those hours again with "
        "pull_usage."
    )


def _compare_file(file: Path, form: str, name: str | None) -> dict[str, Any]:
    cluster = _cluster(name)
    export = formats.open_export(
        file,
        form,
        zone=ZoneInfo(cluster.timezone),
        shares=own_shares(cluster.shares, "shares"),
        meters=load_units(),
    )
    return _compare(cluster, export.rows(), file.name)


def _compare_live(name: str | None, *, hours: int) -> dict[str, Any]:
    """As the source tells these hours now, read by the connector that pulls it. Raises ConnectorError."""
    cluster = _cluster(name)
    connection = Connection.objects.select_related("cluster").filter(cluster=cluster).first()
    if connection is None or cluster.complete_through is None:
        raise BadInputError(f"{cluster.name} has no source that was read: compare a file with --source.")
    until = int(cluster.complete_through.timestamp())
    connector = sources.connect(connection, clock=lambda: int(time.time()))
    rows = connector.usage(since=until - hours * 3600, until=until, open_keys=())
    return _compare(cluster, rows, connection.address)


def _compare(cluster: Cluster, all_rows: Iterable[Row], source: str) -> dict[str, Any]:
    """The source's facts against the ledger's records, job by job; at most twenty differences are named."""
    read = comparison.newest(_facts(cluster, all_rows, now=int(datetime.now(UTC).timestamp())))
    differences = comparison.differences(cluster, read)
    return {
        "file": source,
        "facts": len(read),
        "running": sum(usage.runs for usage in read.values()),
        "differences": [_difference(difference) for difference in differences[:20]],
        "differing": len(differences),
    }


def _facts(cluster: Cluster, rows: Iterable[Row], *, now: int) -> Iterator[UsageFact]:
    """What the ledger keeps of these rows, with the sums of energy that were measured of runs or of their hours."""
    energy = EnergySums.of(cluster)
    for row in rows:
        if isinstance(row, UsageFact) and validation.refuse(row, now=now) is None:
            yield row
            if energy is not None:
                yield from energy.of_runs([row])
        elif isinstance(row, EnergyHour) and energy is not None:
            yield from energy.of_hours([row])


def _difference(difference: Difference) -> str:
    file, ledger = _usage_text(difference.read), _usage_text(difference.recorded)
    return f"{difference.read.job}: the source says {file}, the ledger {ledger}"


def _usage_text(usage: RecordedUsage | None) -> str:
    if usage is None:
        return "nothing"
    seconds, amount, quantity = usage.amounts
    if quantity is not None:
        return f"{quantity:,} counted"
    text = f"{seconds} s and {seconds_text(amount)} GPU-seconds"
    return f"{text} so far" if usage.runs else text


def _cluster(name: str | None) -> Cluster:
    clusters = Cluster.objects.order_by("name")
    if name:
        clusters = clusters.filter(name=name)
    matches = list(clusters)
    if len(matches) != 1:
        raise BadInputError(
            f"There is no cluster {quoted(name)}." if name else "Say with --cluster whose file --source is."
        )
    return matches[0]
