"""Passes that say nothing any more are forgotten, so that their table does not grow with time alone."""

from __future__ import annotations

from datetime import timedelta

from django.db.models import Q

from clusters.models import Cluster, Pull

RETENTION = timedelta(days=30)  # passes over a live cluster that brought nothing
RETENTION_FAILED = timedelta(days=365)
MOST = 5000  # rows that one call deletes of a cluster, so that no transaction is long


def forget() -> int:
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
