"""Which clusters are to be pulled now, and which pulls are old enough to be deleted.

The table says what is due, so a lost or doubled wake-up changes nothing."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db.models import Q

from clusters.models import Cluster, Connection, Pull


def claim(*, moment: datetime) -> list[tuple[int, int]]:
    """Clusters that are due as (id, seconds until the next pull), each given to one caller only.

    A claim puts the cluster off by its interval: should the pull never begin, it is due again then.
    """
    ready = Q(next_pull_at__isnull=True) | Q(next_pull_at__lte=moment)
    due = Connection.objects.filter(ready, enabled=True).order_by("next_pull_at", "pk")
    claimed = []
    for row in due:
        until = moment + timedelta(seconds=row.every)
        if Connection.objects.filter(ready, pk=row.pk, enabled=True).update(next_pull_at=until):
            claimed.append((row.cluster_id, row.every))
    return claimed


def ask(cluster: Cluster) -> bool:
    """Have the cluster pulled at the next occasion, whatever it was put off to; False without a connection."""
    return bool(Connection.objects.filter(cluster=cluster).update(next_pull_at=None))


RETENTION = timedelta(days=30)  # passes over a live cluster that brought nothing
RETENTION_FAILED = timedelta(days=365)
MOST = 5000  # rows that one call deletes of a cluster, so that no transaction is long


def delete_old_pulls() -> int:
    """Delete passes over live clusters that read nothing new and are that much older than their cluster's newest.

    A cluster that is paused keeps its last ones therefore. Passes that brought, changed or set aside a row stay for
    ever, and so do files. Returns how many went.
    """
    gone = 0
    for cluster in Cluster.objects.order_by("pk"):
        newest = Pull.objects.filter(cluster=cluster).order_by("-started_at", "-pk").first()
        if newest is None:
            continue
        old = Q(outcome=Pull.Outcome.DONE, started_at__lt=newest.started_at - RETENTION)
        old |= Q(outcome=Pull.Outcome.FAILED, started_at__lt=newest.started_at - RETENTION_FAILED)
        empty = Pull.objects.filter(
            old, cluster=cluster, until__isnull=False, new=0, revised=0, quarantined=0
        )
        keys = empty.order_by("started_at", "pk").values_list("pk", flat=True)[:MOST]
        gone += Pull.objects.filter(pk__in=list(keys)).delete()[0]
    return gone
