"""Credit that lowers what counts as used of a quota: what was given, and what was paid into wallets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

from billing.models import BillingPeriod, Quota, QuotaCredits
from billing.quotas import counters
from billing.quotas.corrections import Correction
from billing.quotas.counters import sql
from billing.quotas.windows import Window
from billing.rules.money import Money


def load_credits(
    views: Mapping[int, tuple[Quota, Window]], periods: Iterable[BillingPeriod]
) -> tuple[dict[int, Fraction], Mapping[int, list[Correction]]]:
    """By key of a quota net of credits what was given or paid in, in its window.

    And by billing period what its close has billed of earlier ones. One query, none without such quotas and periods.
    """
    net = {key: view for key, view in views.items() if view[0].credits != QuotaCredits.GROSS}
    credited: dict[int, Fraction] = {}
    corrections: dict[int, list[Correction]] = defaultdict(list)
    values: dict[str, Any] = {
        "wants": list(net),
        "tenants": [quota.tenant_id for quota, _ in net.values()],
        "units": [quota.unit for quota, _ in net.values()],
        "with_top_ups": [quota.credits == QuotaCredits.PAID for quota, _ in net.values()],
        "since": [window.start for _, window in net.values()],
        "until": [window.end for _, window in net.values()],
        "first_days": [window.first for _, window in net.values()],
        "end_days": [window.end_day for _, window in net.values()],
        "periods": [period.pk for period in periods],
    }
    rows = counters.rows(sql.CREDITS, values) if net or values["periods"] else ()
    for key, period, end, currency, sum_ in rows:
        if key is not None:
            credited[key] = Money.from_minor(int(sum_), net[key][0].unit).amount
        else:
            corrections[period].append(Correction(end, Money.from_minor(int(sum_), currency)))
    return credited, corrections
