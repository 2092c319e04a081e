"""What the jobs that run on will still cost in a day, unless they end: of quotas that are used up."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction

from billing.models import Quota
from billing.quotas import counters
from billing.quotas.counters import Key
from billing.quotas.price_tags import PriceTags
from billing.quotas.quota_values import plain_value
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
    """By quota, of those that count a running job. One query; none where no quota is given.

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
    prices = PriceTags()
    for want, record, *row in counters.rows(sql.RUNNING, values):
        key, (parts, a_second, lasts), tag = Key(*row[:4]), row[4:7], row[7:]
        prices.add(key.price, tag)
        if a_second and lasts:
            jobs[want].add(record)
            seconds[want][key] += Fraction(int(a_second) * int(lasts), parts)
    return {
        quotas[want].pk: RunningCost(len(jobs[want]), plain_value(quotas[want], prices, counts))
        for want, counts in seconds.items()
    }
