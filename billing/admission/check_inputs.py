"""What a question about a job reads of its tenant, beside the figures of quotas and the price of the job."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from billing.models import Quota, QuotaPeriod
from billing.models.quota_terms import SCOPE
from billing.quotas.demands import BLOCKING
from clusters.connectors.base import UsageFact
from portal.core.tenants.models import Ownership, Project, Tenant
from portal.prepared import instances, prepared_cursor
from portal.sql_files import Statements

sql = Statements(__file__, "check_inputs.sql")


@dataclass(frozen=True, slots=True)
class TenantQuotas:
    """Those in force of a tenant but those of wallets, by name. `is_released`: none of them blocks anything for now."""

    is_released: bool
    has_wallets: bool
    rows: Sequence[Quota]
    newest: Mapping[int, QuotaPeriod]  # of each the last period that has ended
    blocked: Mapping[int, Collection[int]]  # the accounts that each blocks

    def list_counting(self, owner: Ownership, job: UsageFact) -> list[Quota]:
        """Those in whose scope the job is, in the account of `owner`.

        Of a pool that its project borrows from, the job needs nothing itself.
        """
        values = {column: getattr(job, column, "") for column in SCOPE}
        values |= {"account": owner.account.name, "cluster": owner.account.cluster.name}
        return [
            row
            for row in self.rows
            if not row.lends
            and row.project_id in {None, owner.project_id}
            and all(getattr(row, column) in {"", value} for column, value in values.items())
        ]

    def list_relatives(self, rows: Sequence[Quota]) -> list[Quota]:
        """The pools that these borrow from, and all others who do: their figures are needed, too."""
        pools = {row.borrows_from_id for row in rows if row.borrows_from_id is not None}
        return [
            row for row in self.rows if row not in rows and (row.pk in pools or row.borrows_from_id in pools)
        ]


def load_quotas(tenant: Tenant, now: datetime) -> TenantQuotas:
    """One query."""
    values: dict[str, Any] = {
        "tenant": tenant.pk,
        "moment": now,
        "blocking": [state.value for state in BLOCKING],
    }
    quotas: dict[int, Quota] = {}
    newest: dict[int, QuotaPeriod] = {}
    blocked: dict[int, Collection[int]] = {}
    with prepared_cursor() as cursor:
        cursor.execute(sql.QUOTAS, values)
        for row, project, period, accounts, *state in instances(cursor, Quota, Project, QuotaPeriod):
            is_released, has_wallets = state
            if row.pk is not None:
                row.tenant, row.project = tenant, project if row.project_id is not None else None
                quotas[row.pk], blocked[row.pk] = row, accounts or ()
                newest |= {row.pk: period} if period.pk is not None else {}
    for row in quotas.values():
        if row.borrows_from_id in quotas:
            row.borrows_from = quotas[row.borrows_from_id]
    return TenantQuotas(is_released, has_wallets, list(quotas.values()), newest, blocked)
