"""Blocks, read back again: limits that somebody has changed since stay as they are, and are told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

import structlog
from django.db.models import Count, Exists, F, OuterRef, Q

from clusters import blocks
from clusters.connectors.acts import NoAccountError
from clusters.connectors.base import ConnectorError
from clusters.enforcement_plan import LimitError, SchedulerPort
from clusters.models import AccountBlock, Act, Cluster
from clusters.models.acts import OPEN

EVERY = timedelta(minutes=5)
AT_ONCE = 50

log = structlog.get_logger("clusters.blocks")


def review_blocks(*, moment: datetime, opens: Callable[[Cluster], SchedulerPort]) -> list[str]:
    """Read back the limits of what is blocked, each every five minutes; what has changed since the look before, in
    sentences. Nothing is written to a scheduler. Must not be called inside a transaction.
    """
    acts = Act.objects.filter(
        cluster=OuterRef("cluster"), account=OuterRef("account"), user=OuterRef("user"), outcome__in=OPEN
    )
    due = AccountBlock.objects.filter(
        ~Exists(acts), Q(read_back_at=None) | Q(read_back_at__lte=moment - EVERY), ended_at=None
    )
    rows = list(
        due.select_related("cluster").order_by(F("read_back_at").asc(nulls_first=True), "pk")[:AT_ONCE]
    )
    # One that is away is tried again after as long.
    AccountBlock.objects.filter(pk__in=[row.pk for row in rows]).update(read_back_at=moment)
    sentences = []
    for cluster, group in groupby(sorted(rows, key=lambda row: row.cluster_id), lambda row: row.cluster):
        try:
            with opens(cluster) as port:
                for row in group:
                    sentences += _review(port, row)
        except (LimitError, ConnectorError) as error:
            log.info("blocks not read back", cluster=cluster.name, why=str(error))
        except Exception:  # and no other cluster's
            log.exception("blocks not read back", cluster=cluster.name)
    for sentence in sentences:
        log.warning("a blocked account was changed by hand", change=sentence)
    return sentences


def count_changed() -> Mapping[str, int]:
    """By cluster the blocks that somebody has changed since. One query."""
    rows = AccountBlock.objects.filter(ended_at=None).exclude(changed={}).values_list("cluster__name")
    return dict(rows.annotate(Count("pk")).order_by("cluster__name"))


def _review(port: SchedulerPort, row: AccountBlock) -> list[str]:
    """Raises ConnectorError where the scheduler is away; what it refuses of one account stops no other."""
    try:
        now: Mapping[str, Any] = port.acts.limits(row.account, row.user)
    except NoAccountError:
        now = {}
    except ConnectorError as error:
        if error.retry:
            raise
        log.info("block not read back", account=str(row), why=str(error))
        return []
    changed = {name: now.get(name) for name, (_, ours) in row.limits.items() if now.get(name) != ours}
    if changed == row.changed:
        return []
    # Of the limits that were compared: an act may have set others meanwhile.
    same = AccountBlock.objects.filter(pk=row.pk, limits=row.limits, ended_at=None)
    if not same.update(changed=changed):
        return []
    row.changed = changed
    return [f"{row}: {sentence}" for sentence in blocks.list_changes(row)]
