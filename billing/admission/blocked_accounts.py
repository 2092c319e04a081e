"""Which accounts of a cluster are to be blocked now, and why: as programs of its scheduler are told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.utils.translation import gettext as _

from billing.admission.wording import blocked_text
from billing.models import QuotaBlock, QuotaBlockState
from billing.models.quota_blocks import QUOTA_SOURCE
from billing.models.quota_endings import DRAIN_SOURCE
from billing.quotas.quotas import list_quotas
from billing.quotas.status import load_statuses
from clusters import blocks
from clusters.models import Cluster

DEMANDING = (QuotaBlockState.REQUESTED, QuotaBlockState.BLOCKED)


@dataclass(frozen=True, slots=True)
class BlockedAccount:
    """`refuses`: no job can be submitted; else no GPU job starts."""

    account: str
    refuses: bool
    text: str


OF_BUDGETS = (QUOTA_SOURCE, DRAIN_SOURCE)
"""How the sources of what budgets demand begin."""


def list_blocked_accounts(cluster: Cluster, *, moment: datetime) -> Sequence[BlockedAccount]:
    """By name: those that are blocked, and those that a budget demands to be, whether or not that can be done.

    A budget that holds jobs by its terms blocks none: others may be submitted, and wait. One that holds them instead,
    because the scheduler takes no limits, does: what runs at submission needs none. A fixed number of queries.
    """
    refuses: dict[str, bool] = {}
    causes: dict[str, list[str]] = {}
    demanded = QuotaBlock.objects.filter(
        account__cluster=cluster, holds=False, ended_at=None, state__in=DEMANDING, quota__ended_at=None
    )
    rows = list(demanded.select_related("account").order_by("account__name", "pk"))
    quotas = list_quotas().filter(pk__in={row.quota_id for row in rows})
    texts = {one.quota.pk: blocked_text(one) for one in load_statuses(list(quotas), moment=moment)}
    for row in rows:
        name = row.account.name
        refuses[name] = refuses.get(name, False) or row.submits
        causes.setdefault(name, []).append(texts[row.quota_id])
    for block, reasons in blocks.list_blocks(cluster):
        others = [reason for reason in reasons if not reason.source.startswith(OF_BUDGETS)]
        if others and not block.user:
            name = block.account
            refuses[name] = refuses.get(name, False) or any(reason.submits for reason in others)
            causes.setdefault(name, []).append(_("The operators of the cluster have blocked it."))
    return [
        BlockedAccount(
            name, refuses[name], " ".join([_("Account {name} is blocked.").format(name=name), *causes[name]])
        )
        for name in sorted(causes)
    ]
