"""Which clusters are to be pulled now.

The table says what is due, so a lost or doubled wake-up changes nothing.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db.models import Q

from clusters.models import Cluster, Connection


def claim(*, moment: datetime) -> list[tuple[int, int]]:
    """Clusters that are due as (id, seconds until the next pass), each given to one caller only.

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
