"""What budgets do to jobs, in sentences: now, and once all is used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from fractions import Fraction
from zoneinfo import ZoneInfo

from django.db.models import Q
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from billing.admission.wording import ask_text
from billing.models import Quota, QuotaAction, QuotaBlock, QuotaBlockState, QuotaEnding, QuotaEndingState
from billing.quotas import demands, endings, holds, running
from billing.quotas.running import RunningCost
from billing.quotas.status import amount_text
from clusters.models import ClusterKind
from portal.core.tenants.models import Ownership
from portal.web import budget_form

SHOWN_JOBS = 20


@dataclass(frozen=True, slots=True)
class Acts:
    """By quota what is done for it now, and what runs on."""

    blocks: Mapping[int, Sequence[QuotaBlock]] = field(default_factory=dict)
    endings: Mapping[int, Sequence[QuotaEnding]] = field(default_factory=dict)
    running: Mapping[int, RunningCost] = field(default_factory=dict)
    reader_sets: bool = False  # whoever reads it sets budgets of the tenant

    def sentences(self, quota: Quota, zone: ZoneInfo) -> list[str]:
        """What was read back is told apart from what is only asked for; then the way out."""
        blocks = self.blocks.get(quota.pk, ())
        rows = [
            *_block_sentences(quota, [row for row in blocks if not (row.holds or row.holds_instead)]),
            *_hold_sentences([row for row in blocks if row.holds or row.holds_instead]),
            *_ending_sentences(self.endings.get(quota.pk, ()), zone),
        ]
        if rows and not quota.watch:
            rows.append(self._way_out(quota))
        cost = self.running.get(quota.pk)
        return [*rows, _running_sentence(quota, cost)] if cost else rows

    def _way_out(self, quota: Quota) -> str:
        if self.reader_sets and (quota.cap is None or quota.amount < quota.cap):
            return _("Raise its amount to let jobs go on.")
        return _("Ask %(whom)s to raise it.") % {"whom": ask_text(quota)}


def load_acts(
    quotas: Sequence[Quota], *, over: Sequence[Quota], moment: datetime, reader_sets: bool = False
) -> Acts:
    """Of these quotas; `over`: those of which what runs on is computed. A fixed number of queries."""
    acts = demands.load_open_acts(quotas)
    costs = running.load_running_costs(over, moment=moment)
    return Acts(acts.blocks, acts.endings, costs, reader_sets)


def list_refusing_clusters(quota: Quota, moment: datetime) -> list[str]:
    """Of a budget that ends jobs, the clusters of its tenant on which the operator lets none be ended. One query."""
    if quota.action != QuotaAction.END_JOBS:
        return []
    owned = Ownership.objects.filter(Q(until=None) | Q(until__gt=moment), tenant=quota.tenant_id)
    rows = owned.exclude(
        account__cluster__may_end_jobs=True, account__cluster__kind__in=endings.list_kinds(quota)
    )
    names = rows.order_by("account__cluster__name").values_list("account__cluster__name", flat=True)
    return [name for name in dict.fromkeys(names) if quota.cluster in ("", name)]


def list_holding_clusters(quota: Quota, moment: datetime) -> list[str]:
    """Of a budget that blocks, the clusters of its tenant whose accounts cannot be: jobs are held there. One query."""
    if quota.action in {QuotaAction.NOTIFY, QuotaAction.HOLD_JOBS} or quota.user:
        return []
    return [name for name in holds.list_without_limits(quota.tenant, moment) if quota.cluster in ("", name)]


def effect_text(quota: Quota) -> str:
    """What the budget does once all is used."""
    if quota.action == QuotaAction.NOTIFY:
        return _("Only notifies")
    does = dict(budget_form.list_actions())[quota.action]
    if quota.action == QuotaAction.END_JOBS:
        does = _("{action} of {minutes} minutes").format(action=does, minutes=quota.grace_minutes)
    if quota.demand_above is not None:
        does = _("{action}, on clusters of which jobs hold more than {percent} % of the GPUs").format(
            action=does, percent=quota.demand_above
        )
    return _("{action} (watched, nothing is stopped)").format(action=does) if quota.watch else does


def carried_text(quota: Quota, carried: Fraction) -> str:
    """What the period before changes of the amount; "" for nothing."""
    if not carried:
        return ""
    text = _("{amount} left before") if carried > 0 else _("{amount} overdrawn before")
    return text.format(amount=amount_text(abs(carried), quota.unit))


def _running_sentence(quota: Quota, cost: RunningCost) -> str:
    return ngettext(
        "Up to {amount} a day more unless this {jobs} running job ends.",
        "Up to {amount} a day more unless these {jobs} running jobs end.",
        cost.jobs,
    ).format(amount=amount_text(cost.amount, quota.unit), jobs=cost.jobs)


def _block_sentences(quota: Quota, rows: Sequence[QuotaBlock]) -> list[str]:
    labels = {
        QuotaBlockState.BLOCKED: _("Blocked: {accounts}"),
        QuotaBlockState.REQUESTED: _("Not blocked yet: {accounts}"),
        QuotaBlockState.LIFTING: _("Being unblocked: {accounts}"),
        QuotaBlockState.WATCHED: _("Would be blocked: {accounts}"),
    }
    sentences = _by_state(rows, labels)
    if quota.action != QuotaAction.END_JOBS and any(
        row.state == QuotaBlockState.BLOCKED and row.account.cluster.kind == ClusterKind.PROMETHEUS
        for row in rows
    ):
        sentences.append(
            _(
                "Running pods run on. A Deployment or Job whose pod ends may not get it back before this is lifted."
            )
        )
    return sentences


def _hold_sentences(rows: Sequence[QuotaBlock]) -> list[str]:
    labels = {
        QuotaBlockState.BLOCKED: _("Waiting jobs are held: {accounts}"),
        QuotaBlockState.REQUESTED: _("Waiting jobs are not held yet: {accounts}"),
        QuotaBlockState.LIFTING: _("Waiting jobs are being released: {accounts}"),
        QuotaBlockState.WATCHED: _("Waiting jobs would be held: {accounts}"),
    }
    return _by_state(rows, labels)


def _by_state(rows: Sequence[QuotaBlock], labels: Mapping[QuotaBlockState, str]) -> list[str]:
    names = {state: ", ".join(row.account.name for row in rows if row.state == state) for state in labels}
    return [label.format(accounts=names[state]) for state, label in labels.items() if names[state]]


def _ending_sentences(rows: Sequence[QuotaEnding], zone: ZoneInfo) -> list[str]:
    sentences = []
    for row in rows:
        due = f"{row.due_at.astimezone(zone):%Y-%m-%d %H:%M}"
        if row.state == QuotaEndingState.ANNOUNCED:
            text = _("Running jobs of {account} end at {due}")
        elif row.state == QuotaEndingState.WATCHED:
            text = _("Running jobs of {account} would end at {due}")
        elif row.jobs:
            text = _("Ended in {account}: {jobs}")
        else:
            continue
        jobs = ", ".join(row.jobs[-SHOWN_JOBS:])
        sentences.append(text.format(account=row.account.name, due=due, jobs=jobs))
    return sentences
