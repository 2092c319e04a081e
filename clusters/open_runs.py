"""Runs that the ledger holds as open: which to ask a source after, and which it no longer knows."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from django.db import connection
from django.db.models import F

from clusters.models import Cluster, UsageRecord, VanishedRun

_FLAG = """
INSERT INTO clusters_vanishedrun (record_id, since)
SELECT u.id, %(moment)s FROM clusters_usagerecord u
WHERE u.cluster_id = %(cluster)s AND u.source_key = ANY(%(missing)s) AND u.ended IS NULL
ON CONFLICT (record_id) DO NOTHING
"""

# A waiting run that is given anew unchanged writes nothing, so it is known by having been asked after.
_HEAL = """
DELETE FROM clusters_vanishedrun v USING clusters_usagerecord u
WHERE u.id = v.record_id AND u.cluster_id = %(cluster)s
  AND (u.ended IS NOT NULL OR u.last_seen > v.since
       OR (u.source_key = ANY(%(asked)s) AND u.source_key <> ALL(%(missing)s)))
"""


@dataclass(frozen=True, slots=True)
class Vanished:
    """An open run that the scheduler no longer knows; it is billed for [started, until)."""

    account_id: int
    started: datetime
    until: datetime


def open_keys(cluster: Cluster, *, vanished: bool = True) -> list[str]:
    """Source keys of the cluster's open records; without those that vanished unless `vanished`. One query."""
    records = UsageRecord.objects.filter(cluster=cluster, ended=None)
    if not vanished:
        records = records.filter(vanished=None)
    return list(records.order_by("source_key").values_list("source_key", flat=True))


def settle(
    *, cluster: Cluster, keys: Collection[str], missing: Collection[str], moment: datetime
) -> tuple[int, int]:
    """Flag the open runs that a pull asked after in vain, unflag those that came back: (flagged, healed).

    Run again with the same, it changes nothing.
    """
    gone = set(missing)
    back = [key for key in keys if key not in gone]
    with connection.cursor() as cursor:
        cursor.execute(_FLAG, {"cluster": cluster.pk, "missing": list(gone), "moment": moment})
        flagged = cursor.rowcount
        if not VanishedRun.objects.filter(record__cluster=cluster).exists():
            return flagged, 0
        cursor.execute(_HEAL, {"cluster": cluster.pk, "asked": back, "missing": list(gone)})
        return flagged, cursor.rowcount


def vanished(cluster: Cluster, *, limit: int = 50) -> list[VanishedRun]:
    """The cluster's vanished runs with record and account, the newest first."""
    runs = VanishedRun.objects.filter(record__cluster=cluster).select_related("record__account")
    return list(runs.order_by("-since", "-pk")[:limit])


def vanished_of(account_ids: Iterable[int]) -> list[Vanished]:
    """Vanished runs of these accounts that held something. One query."""
    runs = VanishedRun.objects.filter(
        record__account__in=list(account_ids),
        record__ended=None,
        record__seen_until__gt=F("record__started"),
    ).values_list("record__account", "record__started", "record__seen_until")
    return [
        Vanished(account, datetime.fromtimestamp(started, UTC), datetime.fromtimestamp(until, UTC))
        for account, started, until in runs.order_by("pk")
        if started is not None and until is not None
    ]
