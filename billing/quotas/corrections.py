"""Corrections of earlier periods, by the billing period whose invoice brings them: for quotas on what is billed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from billing.invoicing.close_inputs import RatedPeriod
from billing.invoicing.statements import MixedCurrenciesError, Statement
from billing.models import BillingPeriod
from billing.rules.money import Money


class Correction(NamedTuple):
    """Billed of an earlier period: when that ended, and how much."""

    end: datetime
    amount: Money


def with_pending(
    closed: Mapping[int, Sequence[Correction]],
    newest: Sequence[BillingPeriod],
    rated: Mapping[int, Sequence[RatedPeriod]],
    outcomes: Mapping[int, Statement | MixedCurrenciesError],
) -> Mapping[int, list[Correction]]:
    """By period what its close has billed or given back of earlier ones, and what the next close would now.

    `outcomes` are the tenants' statements of their `newest` of the periods, `rated` what these were made of.
    """
    corrections = defaultdict(list, {period: list(own) for period, own in closed.items()})
    for last in newest:
        own = outcomes[last.tenant_id]
        if not isinstance(own, MixedCurrenciesError):
            corrections[_next_to_close(last, rated.get(last.tenant_id, ()))] += _pending(own)
    return corrections


def _next_to_close(last: BillingPeriod, rated: Sequence[RatedPeriod]) -> int:
    """The first that is open. Where all are closed none is here: what is late then waits for a period to come."""
    still_open = [(row.start, row.period) for row in rated if row.tenant == last.tenant_id and not row.closed]
    still_open += [(last.start, last.pk)] if last.closed_at is None else []
    return min(still_open)[1] if still_open else 0


def _pending(own: Statement) -> list[Correction]:
    """What has not been billed yet of periods that are closed."""
    return [
        Correction(line.key.service.end, line.amount)
        for one in (own, *own.others)
        for line in one.lines
        if line.correction and one.periods[line.key.service].closed_at is not None
    ]
