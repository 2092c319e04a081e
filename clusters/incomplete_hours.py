"""What sources that look by themselves did not see: kept hour by hour, until a later pull finds it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection
from django.db.models import F, QuerySet

from clusters.connectors.base import IncompleteHour as Unseen
from clusters.models import Account, Cluster, ClusterKind, Connection, IncompleteHour, Pull

HOUR = 3600

_HEAL = """
DELETE FROM clusters_incompletehour
WHERE cluster_id = %(cluster)s AND begins >= %(since)s AND begins <= %(until)s - 3600 AND begins <> ALL(%(begins)s)
"""

# What an earlier pull saw of an hour was seen, also where the source has lost it since. A part of an hour adds what is
# missing in it to no more than what another part lacks: which part that was is not kept, and the whole is read soon.
_KEEP = """
INSERT INTO clusters_incompletehour AS h (cluster_id, begins, read, covered)
SELECT %(cluster)s, t.begins, t.read, t.covered
FROM unnest(%(begins)s::bigint[], %(read)s::int[], %(covered)s::int[]) AS t (begins, read, covered)
WHERE NOT EXISTS (
    SELECT 1 FROM clusters_pull p
    WHERE p.cluster_id = %(cluster)s AND p.outcome = 'done' AND p.until IS NOT NULL
      AND p.id < (SELECT max(id) FROM clusters_pull WHERE cluster_id = %(cluster)s AND until IS NOT NULL)
      AND p.since <= to_timestamp(t.begins) AND p.as_of >= to_timestamp(t.begins + 3600)
) OR EXISTS (SELECT 1 FROM clusters_incompletehour k WHERE k.cluster_id = %(cluster)s AND k.begins = t.begins)
ON CONFLICT (cluster_id, begins) DO UPDATE
SET read = greatest(h.read, excluded.read),
    covered = CASE WHEN h.read = 3600 AND excluded.read = 3600 THEN greatest(h.covered, excluded.covered)
                   WHEN h.read = 3600 THEN h.covered
                   WHEN excluded.read = 3600 THEN excluded.covered
                   ELSE greatest(h.read, excluded.read)
                      - greatest(h.read - h.covered, excluded.read - excluded.covered) END
"""


def settle(cluster: Cluster, unseen: Iterable[Unseen], *, since: int, until: int) -> None:
    """Keep what the pull over [since, until), epoch seconds, did not see; forget what it saw in full.

    Told in the transaction of the pull's last rows. The same again changes nothing. An hour that a pull read whole is
    known as well as that pass or an earlier one saw it.
    """
    hours = [hour for hour in unseen if hour.covered < hour.read]
    values: dict[str, Any] = {
        "cluster": cluster.pk,
        "since": since,
        "until": until,
        "begins": [hour.begins for hour in hours],
        "read": [hour.read for hour in hours],
        "covered": [hour.covered for hour in hours],
    }
    with connection.cursor() as cursor:
        cursor.execute(_HEAL, values)
        if hours:
            cursor.execute(_KEEP, values)


@dataclass(frozen=True, slots=True)
class Sight:
    """How well a cluster was seen whose source has to look by itself, and the moment from which it was read again."""

    cluster: str
    complete_through: datetime | None
    poor: list[IncompleteHour]  # below what its connection wants, in order
    reread_at: datetime | None  # when the pull began that last read the whole look-back
    paused: bool = False  # its connection is turned off, so that nothing is read unless somebody asks

    def poor_in(self, since: datetime, until: datetime) -> list[IncompleteHour]:
        """Those that touch [since, until)."""
        begin, end = since.timestamp(), until.timestamp()
        return [hour for hour in self.poor if hour.begins < end and hour.begins + HOUR > begin]


def sights(account_ids: Collection[int], *, since: datetime, until: datetime) -> dict[int, Sight]:
    """By account how well its cluster was seen in [since, until); without those whose scheduler keeps a record.

    Three queries at most.
    """
    ids = set(account_ids)
    looking = Connection.objects.filter(cluster__kind=ClusterKind.PROMETHEUS)
    connections = {row.cluster_id: row for row in looking.select_related("cluster")}
    if not connections:
        return {}
    hours = poor(since=int(since.timestamp()) - HOUR + 1)
    by_cluster: dict[int, list[IncompleteHour]] = {cluster: [] for cluster in connections}
    for hour in hours.filter(cluster__in=connections, begins__lt=int(until.timestamp())).order_by("begins"):
        by_cluster[hour.cluster_id].append(hour)
    accounts = Account.objects.filter(cluster__in=connections, pk__in=ids).values_list("pk", "cluster")
    return {
        account: Sight(
            (row := connections[cluster]).cluster.name,
            row.cluster.complete_through,
            by_cluster[cluster],
            row.deep_read_at,
            not row.enabled,
        )
        for account, cluster in accounts
    }


def was_read(cluster: str, *, since: datetime, until: datetime, after: datetime) -> bool:
    """Whether one pull that began then or later read all of [since, until). One query."""
    passes = Pull.objects.filter(cluster__name=cluster, outcome=Pull.Outcome.DONE, started_at__gte=after)
    return passes.filter(since__lte=since, as_of__gte=until).exists()


def poor(*, since: int) -> QuerySet[IncompleteHour]:
    """Hours from that second on, below what the connection of their cluster wants."""
    seen = (HOUR - F("read") + F("covered")) * 100
    return IncompleteHour.objects.annotate(seen_in=seen).filter(
        begins__gte=since, seen_in__lt=F("cluster__connection__coverage_needed") * HOUR
    )


def newest(cluster: Cluster, *, limit: int) -> list[IncompleteHour]:
    """The cluster's incomplete hours, the newest first. One query."""
    return list(IncompleteHour.objects.filter(cluster=cluster).order_by("-begins")[:limit])
