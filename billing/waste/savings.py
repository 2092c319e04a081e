"""What idle jobs cost and what ending them saved: estimates beside what is billed, never added up with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from fractions import Fraction

from billing.models import WasteFinding, WasteState
from billing.quotas.counters import rows
from billing.rules.money import Money
from portal.core.tenants.models import Tenant
from portal.sql_files import Statements

sql = Statements(__file__, "savings.sql")
SPAN = timedelta(days=30)
"""How far back pages look."""
UNLIMITED = timedelta(days=1)
"""So long a job without a time limit is taken to have run on at most."""
ENDED = (WasteState.ENDED, WasteState.REQUEUED)


@dataclass(frozen=True, slots=True)
class Saving:
    """Of a rule's findings of one state and currency, in GPU-seconds and money; None: no price is known.

    `again`: watched jobs that worked again after the moment at which the rule would have ended them.
    """

    rule: int
    state: WasteState
    jobs: int
    idle_seconds: Fraction
    idle_cost: Money | None
    saved_seconds: Fraction
    saved_cost: Money | None
    again: int

    @property
    def is_real(self) -> bool:
        """Whether jobs were ended; else it is what would have been saved."""
        return self.state in ENDED


def load_savings(*, moment: datetime, since: datetime, tenant: Tenant | None = None) -> list[Saving]:
    """Of all jobs that were found since then, of one tenant or of all. One query."""
    values = {"moment": moment, "earliest": since, "tenant": tenant.pk if tenant else None}
    savings = []
    for rule, state, currency, jobs, idle, idle_cost, saved, saved_cost, again in rows(sql.SAVED, values):
        savings.append(
            Saving(
                rule=rule,
                state=WasteState(state),
                jobs=jobs,
                idle_seconds=Fraction(idle),
                idle_cost=_money(idle_cost, currency),
                saved_seconds=Fraction(saved),
                saved_cost=_money(saved_cost, currency),
                again=again,
            )
        )
    return savings


def list_findings(
    *, since: datetime, tenant: Tenant | None = None, limit: int = 100
) -> Sequence[WasteFinding]:
    """Those found since then, and all that are open, the newest first, with tenant and rule. One query."""
    listed = WasteFinding.objects.filter(began_at__gte=since) | WasteFinding.objects.filter(closed_at=None)
    if tenant is not None:
        listed = listed.filter(tenant=tenant)
    return list(listed.select_related("tenant", "rule").order_by("-began_at", "-pk")[:limit])


def idle_cost(row: WasteFinding, moment: datetime) -> Money | None:
    """What it cost since it was idle, until it ended, worked again, or now."""
    until = min(row.ended_at or row.ran_until or moment, moment)
    return _of_seconds(row, int((until - row.idle_since).total_seconds()))


def saved_cost(row: WasteFinding, moment: datetime) -> Money | None:
    """What ending it saved until now, or would have; None where nothing was to be ended or no price is known."""
    if row.state in ENDED and row.ended_at is not None:
        end = min(row.limit_at or row.ended_at + UNLIMITED, moment)
        return _of_seconds(row, int((end - row.ended_at).total_seconds()))
    if row.state == WasteState.WATCHED and row.due_at is not None:
        end = min(row.ran_until or moment, moment)
        return _of_seconds(row, int((end - row.due_at).total_seconds()))
    return None


def _of_seconds(row: WasteFinding, seconds: int) -> Money | None:
    if row.hour_cost is None:
        return None
    return Money(Fraction(row.hour_cost) * max(seconds, 0) / 3600, row.currency)


def _money(amount: object, currency: str) -> Money | None:
    return Money(Fraction(str(amount)), currency) if currency and amount is not None else None
