"""What the jobs that run on will still cost in a day, unless they end: of quotas that are used up."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction

from billing.models import Quota
from billing.quotas import counters, figures, valued_use
from billing.quotas.counters import Key
from portal.sql_files import Statements

sql = Statements(__file__, "running.sql")
DAY = 86400


@dataclass(frozen=True, slots=True)
class RunningCost:
    """So many running jobs use at most so much within the next day, in the quota's unit, as far as their time limits
    reach; at the price of the first unit."""

    jobs: int
    amount: Fraction


def load_running_costs(quotas: Sequence[Quota], *, moment: datetime) -> dict[int, RunningCost]:
    """By quota, of those that count a running job. Two queries; none where no quota is given.

    Time limits are known within the scope of a tenant; elsewhere all jobs are taken to run the day through.
    """
    if not quotas:
        return {}
    values = {
        "wants": list(range(len(quotas))),
        "tenants": [quota.tenant_id for quota in quotas],
        **counters.scope_columns([counters.scope_of(quota) for quota in quotas]),
        "second": int(moment.timestamp()),
        "most": DAY,
        "unseen": counters.UNSEEN,
    }
    seconds: dict[int, dict[Key, Fraction]] = defaultdict(lambda: defaultdict(Fraction))
    jobs: dict[int, set[int]] = defaultdict(set)
    for want, record, *key, parts, a_second, lasts in counters.rows(sql.RUNNING, values):
        if a_second and lasts:
            jobs[want].add(record)
            seconds[want][Key(*key)] += Fraction(int(a_second) * int(lasts), parts)
    prices = valued_use.load_price_tags({key.price for counts in seconds.values() for key in counts})
    return {
        quotas[want].pk: RunningCost(len(jobs[want]), figures.plain_value(quotas[want], prices, counts))
        for want, counts in seconds.items()
    }
