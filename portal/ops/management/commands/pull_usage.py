"""`pull_usage CLUSTER`: read a live cluster now."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, ClassVar
from zoneinfo import ZoneInfo

from django.core.management.base import CommandParser

from billing.rating import pulls
from billing.rating.pulls import Pulled, PullError, PullOutcome
from portal.core.audit import acting_as
from portal.ops.cli import Answer, BadInputError, OperatorCommand, Progress, instant_text, moment
from portal.ops.lookups import the_cluster


class Command(OperatorCommand):
    help = "Pull usage from a live cluster now: from its watermark, or any window anew."
    refusals: ClassVar[tuple[type[Exception], ...]] = (PullError,)

    def arguments(self, parser: CommandParser) -> None:
        parser.add_argument("cluster", metavar="CLUSTER")
        parser.add_argument("--since", metavar="T", help="read again from here; default: the watermark")
        parser.add_argument("--until", metavar="T", help="read up to here; default: now")

    def answer(self, *, cluster: str, since: str | None, until: str | None, **_: Any) -> Answer:
        cluster_row = the_cluster(cluster)
        zone, now = ZoneInfo(cluster_row.timezone), datetime.now(UTC).replace(microsecond=0)
        begin = moment(since, zone) if since else None
        end = moment(until, zone) if until else None
        for name, at in (("since", begin), ("until", end)):
            if at is not None and at > now:
                raise BadInputError(f"--{name} {instant_text(at)} lies in the future.")
        if end is not None and begin is None:
            raise BadInputError("--until needs --since: say from where the window begins.")
        with acting_as("pull_usage", why=cluster), Progress("Rows taken in") as progress:
            pulled = pulls.pull(
                cluster_row,
                since=begin,
                until=end,
                moment=now,
                progress=lambda stored: progress.to(stored.read),
            )
        return Answer(
            _data(cluster, pulled), _text(cluster, pulled), 0 if pulled.outcome is PullOutcome.DONE else 1
        )


def _data(cluster: str, pulled: Pulled) -> dict[str, Any]:
    stored = pulled.stored
    return {
        "cluster": cluster,
        "outcome": pulled.outcome.value,
        "syncs": pulled.syncs,
        "read": stored.read,
        "new": stored.new,
        "unchanged": stored.unchanged,
        "revised": stored.revised,
        "quarantined": stored.quarantined,
        "vanished": pulled.vanished,
        "healed": pulled.healed,
        "complete_through": pulled.complete_through,
        "notes": pulled.notes,
        "error": pulled.error or None,
    }


def _text(cluster: str, pulled: Pulled) -> str:
    if pulled.outcome is PullOutcome.BUSY:
        return f"{cluster} is being pulled already; its page shows how far that is."
    stored = pulled.stored
    syncs = "one sync" if pulled.syncs == 1 else f"{pulled.syncs} syncs"
    head = (
        f"{cluster}: {stored.read:,} rows read in {syncs}: {stored.new:,} new, {stored.unchanged:,} unchanged, "
        f"{stored.revised:,} revised, {stored.quarantined:,} quarantined."
    )
    lines = [head]
    if pulled.vanished:
        lines.append(
            f"{_runs(pulled.vanished)} open here and no longer known to the scheduler: see the cluster's page."
        )
    if pulled.healed:
        lines.append(f"{_runs(pulled.healed)} known to the scheduler again.")
    if stored.quarantined:
        lines.append(
            "Quarantined rows wait with their reason on the operator's page Quarantine and in the administration."
        )
    if pulled.error:
        lines.append(f"It broke off: {pulled.error}")
    if pulled.complete_through:
        lines.append(f"It is complete through {instant_text(pulled.complete_through)}.")
    else:
        lines.append("No time of it has been read completely yet.")
    return "\n".join([*lines, *pulled.notes])


def _runs(count: int) -> str:
    return "1 run is" if count == 1 else f"{count:,} runs are"
