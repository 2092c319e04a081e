"""Credit that lowers what counts as used of a quota: what was given, and what was paid into wallets."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from billing.models import Quota, QuotaCredits
from billing.quotas import counters
from billing.quotas.counters import sql
from billing.quotas.windows import Window
from billing.rules.money import Money


def load_credits(views: Mapping[int, tuple[Quota, Window]]) -> dict[int, Fraction]:
    """By key of a quota net of credits what was given or paid in, in its window. One query, none without such."""
    net = {key: view for key, view in views.items() if view[0].credits != QuotaCredits.GROSS}
    if not net:
        return {}
    values = {
        "wants": list(net),
        "tenants": [quota.tenant_id for quota, _ in net.values()],
        "units": [quota.unit for quota, _ in net.values()],
        "with_top_ups": [quota.credits == QuotaCredits.PAID for quota, _ in net.values()],
        "since": [window.start for _, window in net.values()],
        "until": [window.end for _, window in net.values()],
        "first_days": [window.first for _, window in net.values()],
        "end_days": [window.end_day for _, window in net.values()],
    }
    return {
        key: Money.from_minor(int(sum_), net[key][0].unit).amount
        for key, sum_ in counters.rows(sql.CREDITS, values)
    }
