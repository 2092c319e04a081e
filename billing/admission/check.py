"""May this job run? A question: nothing is set aside, and no lock is taken. Reserving asks the same, under locks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fractions import Fraction

from django.db.models import Q

from billing.admission import check_inputs
from billing.admission.cost import JobCost, longest_that_fits
from billing.admission.wallets import WalletNeed, list_wallets
from billing.models import Quota, QuotaAction
from billing.quotas import figures
from billing.quotas.figures import Figure, FigureInputs
from billing.quotas.freshness import TenantState, load_states
from billing.quotas.reservations import seconds_within
from billing.quotas.status import QuotaStatus
from billing.simulation.quote_inputs import QuoteInputs
from billing.simulation.quotes import account_of, read_length
from clusters.connectors.base import UsageFact
from clusters.models import Cluster
from portal.core.tenants.models import Ownership, Tenant


@dataclass(frozen=True, slots=True)
class Need:
    """What the job would use of one quota that counts it, in the quota's unit, until the quota's period ends.

    `longest`: seconds of the longest time limit that fits, in whole minutes, 0 for none; None: no limit is too long.
    `decides`: whether the quota keeps the job from running where it does not fit; others only tell. `blocks`: it blocks
    the account now, and lets go only a little below its amount. `within`: the seconds of it that `amount` is of.
    """

    status: QuotaStatus
    amount: Fraction
    longest: int | None
    decides: bool
    within: int
    blocks: bool = False

    @property
    def reserves(self) -> Fraction:
        """What has to be left for it: all that it may use, or the quota's cap for one reservation."""
        cap = self.status.quota.reservation_cap
        return self.amount if cap is None else min(self.amount, Fraction(cap))

    @property
    def borrows(self) -> Fraction:
        """Of that, what comes out of the pool: its own is used first."""
        if self.status.quota.borrows_from_id is None:
            return Fraction(0)
        own = self.status.amount - self.status.figure.used - self.status.figure.reserved
        return max(Fraction(0), self.reserves - max(own, Fraction(0)))

    @property
    def fits(self) -> bool:
        """Something is left, it is enough, and no block stands."""
        return self.status.left > 0 and self.reserves <= self.status.left and not self.blocks

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
    wallets: Sequence[WalletNeed] = ()  # of each wallet that would pay for it

    @property
    def refusing(self) -> list[Need]:
        """Those that keep it from running, the least time first."""
        return sorted((need for need in self.needs if need.refuses), key=lambda need: need.longest or 0)

    @property
    def empty_wallets(self) -> list[WalletNeed]:
        """Those that it does not fit."""
        return [need for need in self.wallets if not need.fits]

    @property
    def may_run(self) -> bool:
        return not self.refusing and not self.empty_wallets

    @property
    def longest(self) -> int | None:
        """Seconds of the longest time limit that all fit; None where what was asked for does, or any."""
        longest = [need.longest for need in self.refusing] + [need.longest for need in self.empty_wallets]
        return min((seconds for seconds in longest if seconds is not None), default=None)


def check_job(
    *,
    tenant: Tenant,
    cluster: str,
    job: UsageFact,
    now: datetime,
    besides: int = 0,
) -> JobCheck:
    """Whether the tenant's job may run now on the named cluster, from `job.started` to its time limit `job.ended`.

    `job.account` is one that the tenant owns, "" for any; quotas of a user, queue, QOS or GPU model count it where it
    says so. `besides`: a reservation that would end with this job's. A fixed number of queries, however many
    periods end before the job; more for each length only where prices share an allowance. Raises QuoteError.
    """
    seconds = read_length(job)
    owner = account_of(tenant, cluster, job.account, datetime.fromtimestamp(job.started or 0, UTC))
    quotas = check_inputs.load_quotas(tenant, now)
    rows = quotas.list_counting(owner, job)
    states = load_states([tenant.pk], now)
    inputs = QuoteInputs(tenant, by_statement=states[tenant.pk].by_statement)
    by_quota = _load_figures(quotas, rows, inputs, states, now, besides) if rows else {}
    cost = JobCost(job, owner, now, inputs)
    paying = list_wallets(owner, cost, job.user, seconds, now, besides=besides) if quotas.has_wallets else ()
    needs = []
    for row in rows:
        one = QuotaStatus(row, by_quota[row.pk])
        if one.is_open_at(now):
            acts = not quotas.is_released and decides(row, job)
            need = _need(one, cost, seconds, now, decides=acts)
            needs.append(replace(need, blocks=acts and owner.account_id in quotas.blocked[row.pk]))
    needs = _with_longest(needs, cost)
    return JobCheck(owner.account.name, owner.project.name, seconds, needs, cost.unpriced, paying)


def _load_figures(
    quotas: check_inputs.TenantQuotas,
    rows: Sequence[Quota],
    inputs: QuoteInputs,
    states: Mapping[int, TenantState],
    now: datetime,
    besides: int,
) -> dict[int, Figure]:
    return figures.load_figures(
        [*rows, *quotas.list_relatives(rows)],
        moment=now,
        forecasts=False,
        besides=besides,
        inputs=FigureInputs(
            with_relatives=True, newest=quotas.newest, states=states, statements=inputs.statements
        ),
    )


def check_job_of_account(*, cluster: Cluster, job: UsageFact, now: datetime) -> JobCheck | None:
    """As `check_job`, for whoever owns `job.account` on the cluster now; None where nobody does. Raises QuoteError."""
    read_length(job)
    owner = owner_now(cluster, job.account, now)
    return None if owner is None else check_job(tenant=owner, cluster=cluster.name, job=job, now=now)


def owner_now(cluster: Cluster, account: str, now: datetime) -> Tenant | None:
    """Whose the account is now; None where it is nobody's."""
    rows = Ownership.objects.filter(Q(since=None) | Q(since__lte=now), Q(until=None) | Q(until__gt=now))
    row = rows.filter(account__cluster=cluster, account__name=account).select_related("tenant").first()
    return None if row is None else row.tenant


def decides(quota: Quota, job: UsageFact) -> bool:
    """Whether the quota stops jobs of this kind while all of it is used."""
    if quota.watch or quota.action == QuotaAction.NOTIFY:
        return False
    every_job = (QuotaAction.NO_SUBMISSIONS, QuotaAction.HOLD_JOBS)
    return quota.action in every_job or bool(quota.user) or job.gpus > 0


def _need(status: QuotaStatus, cost: JobCost, seconds: int, now: datetime, *, decides: bool) -> Need:
    """Of a period that ends before the job, only what it uses until then."""
    quota = status.quota
    counted = min(seconds, max(1, seconds_within(quota, status.figure.window, now)))
    return Need(status, cost.of(quota, counted), None, decides, counted)


def _with_longest(needs: Sequence[Need], cost: JobCost) -> list[Need]:
    """With what would fit of those that do not: found for those that decide first, the least that is left first."""
    results = list(needs)
    for place, need in sorted(enumerate(needs), key=lambda pair: (not pair[1].decides, _share_left(pair[1]))):
        if not need.fits:
            left = Fraction(0) if need.blocks else need.status.left
            fits = longest_that_fits(cost, need.status.quota, need.within, left) if left > 0 else 0
            results[place] = replace(need, longest=fits)
    return results


def _share_left(need: Need) -> Fraction:
    """Of what the job needs."""
    return need.status.left / need.amount if need.amount else Fraction(0)
