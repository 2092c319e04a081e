"""Credit that lowers what counts as used of a quota: what was given, and what was paid into wallets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from billing.models import Quota, QuotaCredits
from billing.quotas import counters
from billing.quotas.counters import sql
from billing.quotas.windows import Window
from billing.rules.money import Money


def load_credits(quotas: Sequence[Quota], windows: Mapping[int, Window]) -> dict[int, Fraction]:
    """By quota that is net of credits what was given or paid in, in its window. One query, none without such."""
    net = [quota for quota in quotas if quota.credits != QuotaCredits.GROSS]
    if not net:
        return {}
    values = {
        "wants": [quota.pk for quota in net],
        "tenants": [quota.tenant_id for quota in net],
        "units": [quota.unit for quota in net],
        "with_top_ups": [quota.credits == QuotaCredits.PAID for quota in net],
        "since": [windows[quota.pk].start for quota in net],
        "until": [windows[quota.pk].end for quota in net],
        "first_days": [windows[quota.pk].first for quota in net],
        "end_days": [windows[quota.pk].end_day for quota in net],
    }
    units = {quota.pk: quota.unit for quota in net}
    return {
        pk: Money.from_minor(int(sum_), units[pk]).amount for pk, sum_ in counters.rows(sql.CREDITS, values)
    }
