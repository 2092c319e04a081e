"""The operator's leave that running jobs of a cluster may be ended."""

from __future__ import annotations

from django.db import transaction

from clusters.models import Cluster


@transaction.atomic
def set_ending_leave(*, cluster: Cluster, allowed: bool) -> bool:
    """Have it be so, from now on; whether anything changed. Taken back, what is announced ends no job any more."""
    row = Cluster.objects.select_for_update().get(pk=cluster.pk)
    if row.may_end_jobs == allowed:
        return False
    row.may_end_jobs = allowed
    row.save(update_fields=["may_end_jobs"])
    return True
