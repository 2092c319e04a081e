"""What a worker does for pages about efficiency: it computes a snapshot that one of them requested."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from math import ceil

from django.db import transaction

from billing.models import EfficiencySnapshot
from billing.reports import cluster_efficiency, efficiency, efficiency_snapshots
from clusters.absent_records import RowsInFilesError

DAY = 86_400


@transaction.atomic
def refresh(snapshot_id: int, *, clock: Callable[[], datetime]) -> None:
    """Compute a snapshot that was requested, in the transaction of its request; nothing where none is.

    Ended anywhere, it is done again as a whole.
    """
    requested = EfficiencySnapshot.objects.select_for_update(of=("self",)).select_related("tenant", "cluster")
    snapshot = requested.filter(pk=snapshot_id, requested_at__isnull=False).first()
    if snapshot is None:
        return
    since, moment = snapshot.since, clock()
    until = snapshot.until or max(int(moment.timestamp()), since) + DAY
    try:
        if snapshot.tenant is not None:
            snapshot.answers = efficiency.compute(snapshot.tenant, since=since, until=until, moment=moment)
        elif snapshot.cluster is not None:
            snapshot.answers = cluster_efficiency.compute(snapshot.cluster, since=since, until=until)
    except RowsInFilesError as error:  # asked again, it would meet the same; earlier figures stay
        if (
            snapshot.as_of is None
        ):  # the page says its sentence in place of waiting, until it may be requested again
            snapshot.answers = {efficiency_snapshots.REFUSAL: error.code}
            snapshot.save(update_fields=["answers"])
        return
    snapshot.as_of, snapshot.requested_at = moment, None
    snapshot.seconds = ceil((clock() - moment).total_seconds())
    snapshot.save()
