"""May this job run? A question: nothing is set aside, and nobody's lock is taken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fractions import Fraction

from django.db.models import Q

from billing.admission.cost import JobCost
from billing.models import Quota, QuotaAction, QuotaBlock, QuotaEvery
from billing.models.quota_terms import SCOPE
from billing.quotas import demands, figures, quotas
from billing.quotas.figures import Figure
from billing.quotas.status import QuotaStatus
from billing.simulation.quotes import account_of, read_length
from clusters.connectors.base import UsageFact
from clusters.models import Cluster
from portal.core.tenants.models import Ownership, Tenant

MINUTE = 60
"""Schedulers take time limits in whole minutes."""
TRIES = 8
"""Lengths that are priced, at most, to find the longest that fits where the price is not one a second."""


@dataclass(frozen=True, slots=True)
class Need:
    """What the job would use of one quota that counts it, in the quota's unit, until the quota's period ends.

    `longest`: seconds of the longest time limit that fits, in whole minutes, 0 for none; None: no limit is too long.
    `decides`: whether the quota keeps the job from running where it does not fit; others only tell. `blocks`: it blocks
    the account now, and lets go only a little below its amount.
    """

    status: QuotaStatus
    amount: Fraction
    longest: int | None
    decides: bool
    blocks: bool = False

    @property
    def fits(self) -> bool:
        """Something is left, it is enough, and no block stands."""
        return self.status.left > 0 and self.amount <= self.status.left and not self.blocks

    @property
    def refuses(self) -> bool:
        return self.decides and not self.fits


@dataclass(frozen=True, slots=True)
class JobCheck:
    """The answer. `unpriced`: resources that no price covers, of which nothing is known in money."""

    account: str
    project: str
    seconds: int  # the time limit that was asked for
    needs: Sequence[Need]  # of each quota that counts the job, in order of names
    unpriced: Sequence[str]

    @property
    def refusing(self) -> list[Need]:
        """Those that keep it from running, the least time first."""
        return sorted((need for need in self.needs if need.refuses), key=lambda need: need.longest or 0)

    @property
    def may_run(self) -> bool:
        return not self.refusing

    @property
    def longest(self) -> int | None:
        """Seconds of the longest time limit that all fit; None where what was asked for does, or any."""
        fitting = [need.longest for need in self.refusing if need.longest is not None]
        return min(fitting, default=None)


def check_job(*, tenant: Tenant, cluster: str, job: UsageFact, now: datetime) -> JobCheck:
    """Whether the tenant's job may run now on the named cluster, from `job.started` to its time limit `job.ended`.

    `job.account` is one that the tenant owns, "" for any; quotas of a user, queue, QOS or GPU model count it where it
    says so. A fixed number of queries, and where money is counted those of a quote for each length that a period leaves
    of the job. Raises QuoteError.
    """
    seconds = read_length(job)
    owner = account_of(tenant, cluster, job.account, datetime.fromtimestamp(job.started or 0, UTC))
    rows = [row for row in quotas.list_quotas(tenant) if _counts(row, owner, job)]
    by_quota = figures.load_figures(rows, moment=now, forecasts=False) if rows else {}
    released = bool(rows) and tenant.pk in demands.load_released([tenant.pk], now)
    blocks = demands.list_open(rows) if rows and not released else {}
    cost = JobCost(tenant, cluster, job, owner.account.name, now)
    needs = []
    for row in rows:
        if _is_open(row, by_quota[row.pk], now):
            one, acts = QuotaStatus(row, by_quota[row.pk]), not released and decides(row, job)
            need = _need(one, cost, seconds, now, decides=acts)
            if acts and any(_stands(block, owner) for block in blocks.get(row.pk, ())):
                need = replace(need, longest=0, blocks=True)
            needs.append(need)
    return JobCheck(owner.account.name, owner.project.name, seconds, needs, cost.unpriced)


def check_job_of_account(*, cluster: Cluster, job: UsageFact, now: datetime) -> JobCheck | None:
    """As `check_job`, for whoever owns `job.account` on the cluster now; None where nobody does. Raises QuoteError."""
    read_length(job)
    owner = (
        Ownership.objects.filter(Q(since=None) | Q(since__lte=now), Q(until=None) | Q(until__gt=now))
        .filter(account__cluster=cluster, account__name=job.account)
        .select_related("tenant")
        .first()
    )
    if owner is None:
        return None
    return check_job(tenant=owner.tenant, cluster=cluster.name, job=job, now=now)


def decides(quota: Quota, job: UsageFact) -> bool:
    """Whether the quota stops jobs of this kind while all of it is used."""
    if quota.watch or quota.action == QuotaAction.NOTIFY:
        return False
    return quota.action == QuotaAction.NO_SUBMISSIONS or job.gpus > 0


def _stands(block: QuotaBlock, owner: Ownership) -> bool:
    return block.account_id == owner.account_id and block.state in demands.BLOCKING


def _counts(quota: Quota, owner: Ownership, job: UsageFact) -> bool:
    """Whether what the job uses is in the quota's scope."""
    values = {column: getattr(job, column, "") for column in SCOPE}
    values |= {"account": owner.account.name, "cluster": owner.account.cluster.name}
    return quota.project_id in (None, owner.project_id) and all(
        getattr(quota, column) in ("", value) for column, value in values.items()
    )


def _is_open(quota: Quota, figure: Figure, now: datetime) -> bool:
    return quota.every != QuotaEvery.TERM or figure.window.start <= now < figure.window.end


def _need(status: QuotaStatus, cost: JobCost, seconds: int, now: datetime, *, decides: bool) -> Need:
    """Of a period that ends before the job, only what it uses until then."""
    quota, window = status.quota, status.figure.window
    if quota.every == QuotaEvery.ROLLING:
        within = (quota.hours or 1) * 3600
    else:
        within = max(1, int((window.end - now).total_seconds()))
    counted = min(seconds, within)
    amount = cost.of(quota, counted)
    if amount <= status.left and status.left > 0:
        return Need(status, amount, None, decides)
    if status.left <= 0:
        return Need(status, amount, 0, decides)
    return Need(status, amount, longest_that_fits(cost, quota, counted, status.left), decides)


def longest_that_fits(cost: JobCost, quota: Quota, seconds: int, left: Fraction) -> int:
    """Seconds in whole minutes, fewer than asked for, that cost at most what is left; 0 where no minute does.

    The very longest where every second costs the same; else one that fits, found in TRIES steps. Each goes to where
    what is left would be reached if the price were even in between: far fewer than halves where a tier is short.
    """
    most = (seconds - 1) // MINUTE
    a_second = cost.a_second(quota)
    if a_second is not None:
        return min(most, int(left / a_second / MINUTE)) * MINUTE if a_second else most * MINUTE
    fits, beyond = 0, most + 1
    lower, upper = Fraction(0), cost.of(quota, beyond * MINUTE)
    for _ in range(TRIES):
        if beyond - fits < 2:
            break
        even = (left - lower) / (upper - lower) if upper > lower else Fraction(1, 2)
        middle = min(max(fits + int((beyond - fits) * even), fits + 1), beyond - 1)
        amount = cost.of(quota, middle * MINUTE)
        if amount <= left:
            fits, lower = middle, amount
        else:
            beyond, upper = middle, amount
    return fits * MINUTE
