"""What a question about a job reads of its tenant, beside the figures of quotas and the price of the job."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from billing.models import Quota
from billing.models.quota_terms import SCOPE
from billing.quotas.demands import BLOCKING
from clusters.connectors.base import UsageFact
from portal.core.tenants.models import Ownership, Tenant
from portal.prepared import instances, prepared_cursor
from portal.sql_files import Statements

sql = Statements(__file__, "check_inputs.sql")


@dataclass(frozen=True, slots=True)
class AccountState:
    """`is_released`: no quota of the tenant blocks anything for now. `blocking`: the ids of quotas that block it."""

    is_released: bool
    has_wallets: bool
    blocking: frozenset[int]


def load_quotas(tenant: Tenant, owner: Ownership, job: UsageFact) -> list[Quota]:
    """The quotas in whose scope the job is, in the account of `owner`, by name. One query, one more with pools."""
    values = {column: getattr(job, column, "") for column in SCOPE}
    values |= {"account": owner.account.name, "cluster": owner.account.cluster.name}
    values |= {"tenant": tenant.pk, "project": owner.project_id}
    with prepared_cursor() as cursor:
        cursor.execute(sql.QUOTAS, values)
        rows = [row for (row,) in instances(cursor, Quota)]
    pools = Quota.objects.in_bulk({row.borrows_from_id for row in rows if row.borrows_from_id is not None})
    for row in rows:
        row.tenant = tenant
        if row.project_id is not None:
            row.project = owner.project
        if row.borrows_from_id is not None:
            row.borrows_from = pools[row.borrows_from_id]
    return rows


def load_state(tenant: Tenant, owner: Ownership, now: datetime) -> AccountState:
    """How the account stands now. One query."""
    values: dict[str, Any] = {
        "tenant": tenant.pk,
        "account": owner.account_id,
        "moment": now,
        "blocking": [state.value for state in BLOCKING],
    }
    with prepared_cursor() as cursor:
        cursor.execute(sql.STATE, values)
        is_released, has_wallets, blocking = cursor.fetchone()
    return AccountState(is_released, has_wallets, frozenset(blocking))
