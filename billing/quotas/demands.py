"""Which accounts a quota demands to be blocked, and which not any more: rows that a worker carries out afterwards."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from django.db.models import Q

from billing.models import (
    Quota,
    QuotaAction,
    QuotaBlock,
    QuotaBlockState,
    QuotaEnding,
    QuotaEvery,
    QuotaRelease,
)
from billing.quotas import debts, endings, figures
from billing.quotas.jobs import Demand
from billing.quotas.thresholds import Outcome
from billing.rules import quotas as rules
from clusters.models import Account, Cluster
from portal.core.tenants.models import Ownership
from portal.prepared import instances, prepared_cursor
from portal.sql_files import Statements

sql = Statements(__file__, "demands.sql")

BLOCKING = (QuotaBlockState.REQUESTED, QuotaBlockState.BLOCKED)
LIFTING, WATCHED = QuotaBlockState.LIFTING, QuotaBlockState.WATCHED


def demand_blocks(outcomes: Sequence[Outcome], *, tenants: Collection[int], moment: datetime) -> None:
    """Within the pass: begin the blocks and endings that its figures demand, and stop those that nothing demands now.

    The tenants are those of the pass: a quota of theirs that has ended demands nothing. The same figures again change
    nothing. Two queries where no quota acts.
    """
    current = _load_current(tenants)
    acting = [one for one in outcomes if one.quota.action != QuotaAction.NOTIFY]
    if not acting and not current:
        endings.announce_endings(
            (), tenants=tenants, moment=moment
        )  # one may have waited for its last cancel
        return
    accounts, released = _load_accounts(tenants, moment), load_released(tenants, moment)
    in_use = debts.load_use_of_clusters([one.quota for one in acting], accounts)
    standing = {row.quota_id for row in current.values() if row.state != LIFTING}
    unread = _list_over_when_read([one for one in acting if one.quota.pk in standing])
    demands: dict[tuple[int, int], Demand] = {}
    for one in acting:
        if one.quota.tenant_id not in released and is_demanded(one, unread=unread, moment=moment):
            demands |= {
                (one.quota.pk, owner.account_id): Demand(one, owner.account)
                for owner in _in_scope(one.quota, accounts)
                if debts.is_in_demand(
                    one.quota,
                    in_use.get(owner.account.cluster_id),
                    stands=(one.quota.pk, owner.account_id) in current,
                )
            }
    _end([row for key, row in current.items() if not _is_same(row, demands.get(key))], moment)
    again = [
        row.pk for key, row in current.items() if row.state == LIFTING and _is_same(row, demands.get(key))
    ]
    QuotaBlock.objects.filter(pk__in=again, state=LIFTING).update(
        state=QuotaBlockState.REQUESTED, next_at=moment
    )
    open_keys = {
        key for key, row in current.items() if row.state != WATCHED or _is_same(row, demands.get(key))
    }
    QuotaBlock.objects.bulk_create(
        _begun(one, moment)
        for key, one in sorted(demands.items(), key=lambda pair: pair[0])
        if key not in open_keys
    )
    endings.announce_endings(list(demands.values()), tenants=tenants, moment=moment)


@dataclass(frozen=True, slots=True)
class OpenActs:
    """By quota what is done to accounts now, by their names: blocks that stand, are asked for, are being lifted or only
    watched, and endings of jobs that are announced or done while all of it is used."""

    blocks: dict[int, list[QuotaBlock]] = field(default_factory=lambda: defaultdict(list))
    endings: dict[int, list[QuotaEnding]] = field(default_factory=lambda: defaultdict(list))


def load_open_acts(quotas: Sequence[Quota]) -> OpenActs:
    """One query."""
    acts, seen = OpenActs(), set[tuple[bool, int]]()
    with prepared_cursor() as cursor:
        cursor.execute(sql.OPEN, {"quotas": [quota.pk for quota in quotas]})
        for block, ending, account, account.cluster in instances(
            cursor, QuotaBlock, QuotaEnding, Account, Cluster
        ):
            for row, by_quota in ((block, acts.blocks), (ending, acts.endings)):
                if row.pk is not None and (row is block, row.pk) not in seen:
                    seen.add((row is block, row.pk))
                    row.account = account
                    by_quota[row.quota_id].append(row)
    return acts


def is_demanded(one: Outcome, *, unread: Collection[int], moment: datetime) -> bool:
    """Whether all of the quota is used. A block is lifted with the first cent that is left, and after its term.

    It stands while a window empties because nothing is read: `unread` are quotas of such.
    """
    if one.quota.every == QuotaEvery.TERM and not one.figure.window.start <= moment < one.figure.window.end:
        return False
    return is_over(one) or one.quota.pk in unread


def _list_over_when_read(standing: Sequence[Outcome]) -> set[int]:
    """Of quotas that block, those whose window only emptied since a cluster was last read: what they may use now was
    all used then. One figure more for each moment up to which a cluster is read; none where all are.
    """
    by_moment: dict[datetime, list[Outcome]] = defaultdict(list)
    for one in standing:
        if one.quota.every == QuotaEvery.ROLLING and one.figure.stale_since is not None and not is_over(one):
            by_moment[one.figure.stale_since].append(one)
    over = set()
    for read, rows in by_moment.items():
        then = figures.load_figures([one.quota for one in rows], moment=read, forecasts=False)
        over |= {one.quota.pk for one in rows if is_over(replace(one, figure=then[one.quota.pk]))}
    return over


def is_over(one: Outcome) -> bool:
    """Whether the quota acts and all of it is used; one of nothing by the first second."""
    used, amount = one.figure.used, one.limit
    overdrawn = one.figure.is_overdrawn(one.quota)
    state = rules.state(used, amount=amount, thresholds=(), overdrawn=overdrawn)
    return one.quota.action != QuotaAction.NOTIFY and state == rules.QuotaState.OVER


def _is_same(row: QuotaBlock, one: Demand | None) -> bool:
    """Whether the row is what the quota demands now: another action, or watching instead, is another demand."""
    if one is None:
        return False
    is_watched = row.state == WATCHED
    same = (row.submits, row.holds, row.user) == (one.submits, one.holds, one.user)
    return is_watched == one.quota.watch and same


def _begun(one: Demand, moment: datetime) -> QuotaBlock:
    quota = one.quota
    return QuotaBlock(
        tenant_id=quota.tenant_id,
        quota=quota,
        account=one.account,
        submits=one.submits,
        holds=one.holds,
        user=one.user,
        state=QuotaBlockState.WATCHED if quota.watch else QuotaBlockState.REQUESTED,
        why=one.why,
        began_at=moment,
        next_at=moment,
    )


def _end(rows: Sequence[QuotaBlock], moment: datetime) -> None:
    """What was never sent ends at once; what may have been is to be lifted."""
    watched = [row.pk for row in rows if row.state == WATCHED]
    blocking = [row.pk for row in rows if row.state in BLOCKING]
    QuotaBlock.objects.filter(pk__in=watched).update(ended_at=moment)
    QuotaBlock.objects.filter(pk__in=blocking, state__in=BLOCKING).update(
        state=LIFTING, next_at=moment, tries=0, error=""
    )


def _load_current(tenants: Collection[int]) -> dict[tuple[int, int], QuotaBlock]:
    """By quota and account what is demanded, watched or being lifted."""
    rows = QuotaBlock.objects.filter(tenant__in=tenants, ended_at=None).order_by("pk")
    return {(row.quota_id, row.account_id): row for row in rows}


def load_released(tenants: Collection[int], moment: datetime) -> dict[int, datetime]:
    """Tenants whose quotas block nothing, each with the moment until which.

    A release holds from when it is written: by the clock of another machine it may have been made a little later.
    """
    rows = QuotaRelease.objects.filter(tenant__in=tenants, until__gt=moment)
    return dict(rows.order_by("until").values_list("tenant", "until"))


def _load_accounts(tenants: Collection[int], moment: datetime) -> Mapping[int, list[Ownership]]:
    """By tenant what it owns now."""
    rows = Ownership.objects.filter(Q(until=None) | Q(until__gt=moment), tenant__in=tenants)
    rows = rows.filter(Q(since=None) | Q(since__lte=moment)).select_related("account__cluster")
    by_tenant: dict[int, list[Ownership]] = defaultdict(list)
    for row in rows:
        by_tenant[row.tenant_id].append(row)
    return by_tenant


def _in_scope(quota: Quota, accounts: Mapping[int, list[Ownership]]) -> list[Ownership]:
    return [
        row
        for row in accounts.get(quota.tenant_id, ())
        if quota.project_id in (None, row.project_id)
        and quota.account in ("", row.account.name)
        and quota.cluster in ("", row.account.cluster.name)
    ]
