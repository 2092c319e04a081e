"""Which accounts of a cluster are to be blocked now, and why: as programs of its scheduler are told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.utils.translation import gettext as _

from billing.models import QuotaBlock, QuotaBlockState
from billing.models.quota_blocks import QUOTA_SOURCE
from billing.models.quota_endings import DRAIN_SOURCE
from clusters import blocks
from clusters.models import BlockReason, Cluster

DEMANDING = (QuotaBlockState.REQUESTED, QuotaBlockState.BLOCKED)


@dataclass(frozen=True, slots=True)
class BlockedAccount:
    """`refuses`: no job can be submitted; else no GPU job starts."""

    account: str
    refuses: bool
    text: str


OF_BUDGETS = (QUOTA_SOURCE, DRAIN_SOURCE)
"""How the sources of what budgets demand begin."""


def list_blocked_accounts(cluster: Cluster) -> Sequence[BlockedAccount]:
    """By name: those that are blocked, and those that a budget demands to be, whether or not that can be done.

    A budget that holds jobs by its terms blocks none: others may be submitted, and wait. One that holds them instead,
    because the scheduler takes no limits, does: what runs at submission needs none.
    """
    refuses: dict[str, bool] = {}
    causes: dict[str, list[str]] = {}
    rows = QuotaBlock.objects.filter(
        account__cluster=cluster, holds=False, ended_at=None, state__in=DEMANDING
    )
    for row in rows.select_related("account", "quota", "tenant").order_by("account__name", "pk"):
        name = row.account.name
        refuses[name] = refuses.get(name, False) or row.submits
        causes.setdefault(name, []).append(_("budget {name} is used up").format(name=row.quota.name))
    for block in blocks.with_reasons(cluster):
        standing: Sequence[BlockReason] = block.standing  # type: ignore[attr-defined]  # of the prefetch
        others = [reason for reason in standing if not reason.source.startswith(OF_BUDGETS)]
        if others and not block.user:
            name = block.account
            refuses[name] = refuses.get(name, False) or any(reason.submits for reason in others)
            causes.setdefault(name, []).append(_("blocked by the operators of the cluster"))
    return [
        BlockedAccount(
            name,
            refuses[name],
            _("Account {name}: {causes}.").format(name=name, causes=", ".join(causes[name])),
        )
        for name in sorted(causes)
    ]
