"""The scheduler's users as documents name them: by a number, so that a name can be erased and what is signed stays."""

from __future__ import annotations

from collections.abc import Sequence

import pgtrigger
from django.db import connection, transaction

from clusters import ledger
from portal.core.tenants.models import Tenant

SLICE = 10_000  # records renamed by one statement
_WALLETS = ("billing_wallettotal", "billing_wallet")
"""Each user may have one, and what is charged to it has to go on finding it."""
_FINDINGS = ("billing_wastefinding", "billing_servicecredit")
"""Of jobs, which name their users."""

_NUMBER = """
INSERT INTO billing_jobuser (tenant_id, name)
SELECT DISTINCT u.tenant_id, u."user" FROM {table} u WHERE u.tenant_id = %s AND u."user" <> ''
  AND NOT EXISTS (SELECT FROM billing_jobuser p WHERE p.tenant_id = u.tenant_id AND p.name = u."user")
ORDER BY 2 ON CONFLICT DO NOTHING
"""
_RENAME = """
UPDATE {table} u SET "user" = erased_user(p.id) FROM billing_jobuser p
WHERE u.tenant_id = %s AND p.tenant_id = u.tenant_id AND p.name = u."user" AND p.name <> erased_user(p.id)
  AND p.name = ANY (coalesce(%s::text[], ARRAY[p.name]))
"""
_SERIES_DIGESTS = """
UPDATE billing_usageseries s SET digest = d.digest FROM (
    SELECT id, series_digest(project_id, resource, price_id, share_den, label_digest(
               usage_label("user", account, cluster, gpu_model, queue, qos, state))) AS digest
    FROM billing_usageseries WHERE tenant_id = %s
) d WHERE d.id = s.id AND d.digest <> s.digest
"""
# Sums by user, which a worker computes again.
_EFFICIENCY = "DELETE FROM billing_efficiencysnapshot WHERE tenant_id = %s"
_FORGET = """
UPDATE billing_jobuser p SET name = erased_user(p.id) WHERE p.tenant_id = %s AND p.name <> erased_user(p.id)
  AND p.name = ANY (coalesce(%s::text[], ARRAY[p.name]))
"""

# What is another tenant's too names its people, as long as that one does.
_RECORDS = """
SELECT j.record_id, erased_user(p.id)
FROM billing_ratedjob j JOIN billing_jobuser p ON p.tenant_id = j.tenant_id AND p.name = j."user"
WHERE j.tenant_id = %s AND p.name <> erased_user(p.id)
  AND p.name = ANY (coalesce(%s::text[], ARRAY[p.name])) AND NOT EXISTS (
    SELECT FROM billing_ratedjob o
    WHERE o.record_id = j.record_id AND o.tenant_id <> j.tenant_id AND o."user" = p.name)
"""


def number_users(tenant_id: int) -> None:
    """Give each user that anything was billed for a number; whoever has one keeps it."""
    with connection.cursor() as cursor:
        cursor.execute(_NUMBER.format(table="billing_usageseries"), [tenant_id])


@transaction.atomic
def erase_users(tenant: Tenant, *, names: Sequence[str] | None = None) -> int:
    """Replace the names of the users of the tenant's jobs by their numbers, everywhere; how many. Again, none is left.

    `names`: of these users alone. Digests, signatures and sums stay: what is signed has the numbers alone. For a caller
    that holds the tenant's lock.
    """
    values = [tenant.pk, None if names is None else list(names)]
    trigger = "billing.RatedJob:billed_job_is_kept_before_it_changes"
    with connection.cursor() as cursor:
        for table in ("billing_ratedjob", "billing_billedjob", *_WALLETS):
            cursor.execute(_NUMBER.format(table=table), [tenant.pk])
        number_users(tenant.pk)
        cursor.execute(_RECORDS, values)
        while rows := cursor.fetchmany(SLICE):
            ledger.rename_users(rows)
        with pgtrigger.ignore(trigger):  # the old name is not to be kept
            cursor.execute(_RENAME.format(table="billing_ratedjob"), values)
        for table in ("billing_billedjob", "billing_usageseries", *_WALLETS, *_FINDINGS):
            cursor.execute(_RENAME.format(table=table), values)
        cursor.execute(_SERIES_DIGESTS, [tenant.pk])
        cursor.execute(_EFFICIENCY, [tenant.pk])
        cursor.execute(_FORGET, values)
        return int(cursor.rowcount)
