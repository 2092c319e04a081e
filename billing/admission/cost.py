"""What a job of some length comes to in the units of quotas: money by the engine's quote, GPU-hours by its shape."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from fractions import Fraction

from msgspec.structs import replace

from billing.models import Quota, QuotaMeasure, Settles
from billing.models.plans import model_of
from billing.rules.tiers import Scale
from billing.simulation.quote_inputs import QuoteInputs
from billing.simulation.quotes import CutJob, Part, Quote, cut_job, price_job
from clusters.connectors.base import UsageFact
from portal.core.tenants.models import Ownership

HOUR = 3600
MINUTE = 60
"""Schedulers take time limits in whole minutes."""
TRIES = 8
"""Lengths that are priced, at most, to find the longest that fits where the price is not one a second: of all quotas
and wallets of a job together. Whoever comes later goes by what was priced for those before."""


@dataclass(slots=True)
class JobCost:
    """Of one job, by its length up to its own. Each length is priced once, and only where a quota counts money.

    The job is cut once, as it would be rated, whatever its lengths are.
    """

    job: UsageFact
    owner: Ownership  # of the account that it would run in
    now: datetime
    inputs: QuoteInputs
    quotes: dict[int, Quote] = field(default_factory=dict)
    tries: int = TRIES  # that are left
    cut: CutJob | None = None

    @property
    def unpriced(self) -> list[str]:
        """Resources that no price covers; none where nothing was quoted."""
        return sorted({resource for one in self.quotes.values() for resource, _ in one.unpriced})

    def of(self, quota: Quota, seconds: int) -> Fraction:
        """What so many seconds of it use, in the quota's unit: tiers, allowances and terms as they stand now.

        Exact where the price is one a second: lines are rounded, and many jobs of less than half a cent are not free.
        """
        if quota.measure == QuotaMeasure.GPU_HOURS:
            return self._gpu_hours_a_second * seconds
        one = self._quote(seconds)
        if one.terms and quota.measure == QuotaMeasure.MONEY and quota.is_of_whole_tenant:
            return sum((money.amount for money in one.total if money.currency == quota.unit), Fraction(0))
        return sum((_exact(part) for part in self._parts(quota, one)), Fraction(0))

    def a_second(self, quota: Quota) -> Fraction | None:
        """What each second uses of it, exact; None where that depends on which second it is, or on a total."""
        if quota.measure == QuotaMeasure.GPU_HOURS:
            return self._gpu_hours_a_second
        seconds = max(self.quotes)
        one = self.quotes[seconds]
        meters = [part.meter for part in one.parts]
        if one.terms or len({*meters}) < len(meters) or any(_looks_at_totals(part) for part in one.parts):
            return None
        return sum((_exact(part) for part in self._parts(quota, one)), Fraction(0)) / seconds

    @property
    def _gpu_hours_a_second(self) -> Fraction:
        return Fraction(self.job.gpus) * Fraction(*self.job.gpu_share) / HOUR

    def _quote(self, seconds: int) -> Quote:
        if seconds not in self.quotes:
            if self.cut is None:
                job = replace(self.job, account=self.owner.account.name)
                self.cut = cut_job(job, account=self.owner, now=self.now, inputs=self.inputs)
            self.quotes[seconds] = price_job(self.cut, seconds)
        return self.quotes[seconds]

    def _parts(self, quota: Quota, one: Quote) -> list[Part]:
        """Those that the quota counts: in its unit, and of credits only what wallets pay."""
        parts = [part for part in one.parts if part.amount.currency == quota.unit]
        if quota.measure != QuotaMeasure.CREDITS:
            return parts
        return [part for part in parts if part.price.version.plan.settles == Settles.WALLET]


def _looks_at_totals(part: Part) -> bool:
    return part.price.model != Scale.PER_UNIT.value or part.price.allowance_id is not None


def _exact(part: Part) -> Fraction:
    """As on its line where that looks at totals."""
    if _looks_at_totals(part):
        return part.amount.amount
    return model_of(part.price).amount(part.seconds, part.amount.currency).amount


def longest_that_fits(cost: JobCost, quota: Quota, seconds: int, left: Fraction) -> int:
    """Seconds in whole minutes, fewer than asked for, that cost at most what is left; 0 where no minute does.

    The very longest where every second costs the same; else one that fits, found from the lengths that were priced
    before in the TRIES that are left, and in one more where none of them fits. Each goes to where what is left would be
    reached if the price were even in between: far fewer than halves where a tier is short.
    """
    most = (seconds - 1) // MINUTE
    a_second = cost.a_second(quota)
    if a_second is not None:
        return min(most, int(left / a_second / MINUTE)) * MINUTE if a_second else most * MINUTE
    fits, beyond = 0, most + 1
    lower, upper = Fraction(0), cost.of(quota, beyond * MINUTE)
    for priced in sorted(
        length for length in cost.quotes if length < beyond * MINUTE and length % MINUTE == 0
    ):
        amount = cost.of(quota, priced)
        if amount > left:
            beyond, upper = priced // MINUTE, amount
            break
        fits, lower = priced // MINUTE, amount
    for _ in range(cost.tries or int(not fits)):
        if beyond - fits < 2:
            break
        cost.tries = max(0, cost.tries - 1)
        even = (left - lower) / (upper - lower) if upper > lower else Fraction(1, 2)
        middle = min(max(fits + int((beyond - fits) * even), fits + 1), beyond - 1)
        amount = cost.of(quota, middle * MINUTE)
        if amount <= left:
            fits, lower = middle, amount
        else:
            beyond, upper = middle, amount
    return fits * MINUTE
