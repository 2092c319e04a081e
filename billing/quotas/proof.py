"""That the counters of quotas are the rated usage in their scopes, summed anew."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime
from fractions import Fraction

from billing.models import Quota
from billing.proof.checks import Check
from billing.quotas import counters
from billing.quotas.counters import Key, Span, Wants, scope_of
from billing.quotas.quotas import list_quotas
from billing.quotas.windows import load_calendars
from billing.rules.quotas import Every

SHOWN = 10


def prove_quotas(*, moment: datetime) -> Check:
    """Of each quota in force, its present period: what its days count is what rated rows of its jobs add up to.

    The days are read as the figure reads them, the rows job by job. Names up to ten places where the two differ.
    """
    rows = [quota for quota in list_quotas() if quota.every != Every.ROLLING]
    calendars = load_calendars(rows)
    wants, numbers, edges = Wants(), [], []
    for quota in rows:
        window, scope = calendars[quota.tenant_id].window(quota, moment), scope_of(quota)
        span = Span(quota.tenant_id, window.first, window.end_day, window.start, window.end)
        numbers.append(wants.add(span, scope))
        since, until = int(window.start.timestamp()), int(window.end.timestamp())
        edges.append(counters.Edge(quota.tenant_id, since, until, scope))
    counts = wants.count(moment)
    broken = []
    for quota, number, by_period in zip(rows, numbers, counters.count_edges(edges), strict=True):
        rated: dict[Key, Fraction] = defaultdict(Fraction)
        for count in by_period.values():
            for key, seconds in count.rated.items():
                rated[key] += seconds
        broken += _differences(quota, counts[number].rated, rated)
    return Check("quotas count the rated usage in their scope", broken[:SHOWN])


def _differences(quota: Quota, counted: dict[Key, Fraction], rated: dict[Key, Fraction]) -> list[str]:
    return [
        f"{quota.tenant.slug}/{quota.name}, {key.resource} of project {key.name or '(none)'}: "
        f"{counted.get(key, Fraction(0))} s counted, {rated.get(key, Fraction(0))} s rated"
        for key in sorted({*counted, *rated}, key=str)
        if counted.get(key, Fraction(0)) != rated.get(key, Fraction(0))
    ]
