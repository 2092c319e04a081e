"""Whether what jobs cost is written into them on a cluster, where their users see it."""

from __future__ import annotations

from django.db import transaction

from clusters.models import Cluster, Connection


@transaction.atomic
def set_job_prices(*, cluster: Cluster, on: bool) -> bool:
    """Have it be so, from now on; whether anything changed. Off, what is written stays until its jobs end."""
    row = Cluster.objects.select_for_update().get(pk=cluster.pk)
    if row.job_prices == on:
        return False
    row.job_prices = on
    row.save(update_fields=["job_prices"])
    Connection.objects.filter(cluster=cluster).update(job_prices_error="")  # what hindered may be mended
    return True
