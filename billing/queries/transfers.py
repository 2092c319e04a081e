"""Bank transfers for the operator's page. A fixed number of queries, however many rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count, Sum

from billing.bank_transfers import transfer_posting
from billing.models import BankStatement, RefusedEntry, Transfer, TransferPart, TransferState
from billing.receivables import credit_balance
from portal.core.audit.models import AuditEntry
from portal.core.tenants.models import Tenant

PAGE = 25
STATEMENTS = 8
REFUSED = 20
CANDIDATES = 3  # transfers that a debit may take back


def tallies() -> dict[str, tuple[int, dict[str, int]]]:
    """By state how many there are, and what they come to by currency. One query."""
    totals: dict[str, tuple[int, dict[str, int]]] = {}
    rows = Transfer.objects.values_list("state", "currency").annotate(count=Count("pk"), sum=Sum("amount"))
    for state, currency, count, amount in rows.order_by("state", "currency"):
        state_count, sums = totals.get(state, (0, {}))
        totals[state] = state_count + count, sums | {currency: int(amount)}
    return totals


def transfers(*, states: Sequence[TransferState], before: int = 0) -> tuple[list[Transfer], int]:
    """Those in these states, the newest first, and the cursor of what follows; 0 for nothing."""
    selection = Transfer.objects.filter(state__in=states).select_related("undoes").order_by("-pk")
    rows = list((selection.filter(pk__lt=before) if before else selection)[: PAGE + 1])
    return rows[:PAGE], rows[PAGE - 1].pk if len(rows) > PAGE else 0


def parts(rows: Sequence[Transfer]) -> dict[int, list[TransferPart]]:
    """By transfer what it is booked on now. One query."""
    by_transfer: dict[int, list[TransferPart]] = defaultdict(list)
    active_parts = TransferPart.objects.filter(
        transfer__in=[row.pk for row in rows], amount__gt=0, undone_by=None
    )
    for part in active_parts.select_related("payment__invoice", "tenant", "grant__wallet").order_by("pk"):
        by_transfer[part.transfer_id].append(part)
    return by_transfer


@dataclass(frozen=True, slots=True)
class Step:
    """What became of a transfer at a moment: `state` and `why` since then, and who had it so."""

    at: datetime
    state: TransferState
    by: str
    why: str


def steps(row: Transfer) -> list[Step]:
    """How it came to stand as it does, from the history that no one can edit, the oldest first. One query."""
    steps: list[Step] = []
    values = {"state": "", "decided_by": "", "reason": ""}
    for entry in AuditEntry.objects.of(row):
        values |= {name: value for name, value in (entry.after or {}).items() if name in values}
        step = Step(
            entry.at,
            TransferState(values["state"]),
            values["decided_by"] or transfer_posting.BY,
            values["reason"],
        )
        if not steps or _differs(step, steps[-1]):
            steps.append(step)
    return steps


def _differs(step: Step, before: Step) -> bool:
    return (step.state, step.why, step.by) != (before.state, before.why, before.by)


def all_parts(row: Transfer) -> list[TransferPart]:
    """What it was ever booked on, and where that was taken back, in their order. One query."""
    rows = row.parts.select_related("payment__invoice", "tenant", "grant__wallet")
    return list(rows.order_by("pk"))


def taken_back(rows: Sequence[Transfer]) -> dict[int, list[Transfer]]:
    """By waiting debit the transfers over as much that it may take back, the newest first. One query."""
    debits = [row for row in rows if row.amount < 0]
    if not debits:
        return {}
    credit_transfers = Transfer.objects.filter(
        amount__in=[-row.amount for row in debits], undone_by=None
    ).exclude(state=TransferState.RETURNED)
    candidates = list(credit_transfers.order_by("-pk")[:200])
    return {
        row.pk: [
            each
            for each in candidates
            if (each.amount, each.currency, each.account) == (-row.amount, row.currency, row.account)
        ][:CANDIDATES]
        for row in debits
    }


def refused() -> list[RefusedEntry]:
    """Entries in quarantine that nobody has settled, the newest first."""
    rows = RefusedEntry.objects.filter(resolution="").select_related("statement")
    return list(rows.order_by("-pk")[:REFUSED])


def credit_balances() -> list[tuple[Tenant, str, int]]:
    """Tenants with a credit balance, its currency and minor units. Two queries."""
    balances = credit_balance.list_balances()
    tenants = Tenant.objects.in_bulk([tenant for tenant, _ in balances])
    return [(tenants[tenant], currency, amount) for (tenant, currency), amount in balances.items()]


def statements() -> list[BankStatement]:
    """Those that were taken in last, the newest first."""
    return list(BankStatement.objects.order_by("-pk")[:STATEMENTS])
