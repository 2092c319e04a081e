"""The scheduler's users as documents name them: by a number, so that a name can be erased and what is signed stays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar, NamedTuple

import pgtrigger
from django.db import connection, transaction

from billing.models import Preview, PreviewKind
from clusters import ledger
from portal.core.outbox import outbox
from portal.core.tenants.models import Tenant
from portal.errors import CodedError
from portal.sql_files import Statements

sql = Statements(__file__, "job_users.sql")
SLICE = 10_000  # records renamed by one statement
_WALLETS = ("billing_wallettotal", "billing_wallet")
"""Each user may have one, and what is charged to it has to go on finding it."""
_FINDINGS = ("billing_wastefinding", "billing_servicecredit")
"""Of jobs, which name their users."""

_RENAME = """
UPDATE {table} u SET "user" = erased_user(p.id) FROM billing_jobuser p
WHERE u.tenant_id = %s AND p.tenant_id = u.tenant_id AND p.name = u."user" AND p.name = ANY (%s::text[])
  AND p.name <> erased_user(p.id)
"""
# Jobs have an index for each kind of the tenant's, and none for both.
_RENAME_JOBS = """
UPDATE billing_ratedjob u SET "user" = erased_user(p.id) FROM billing_jobuser p
WHERE (u.tenant_id = %s AND u.meter = '' OR u.tenant_id = %s AND u.meter <> '') AND p.tenant_id = u.tenant_id
  AND p.name = u."user" AND p.name = ANY (%s::text[]) AND p.name <> erased_user(p.id)
"""


class NamesInFilesError(CodedError):
    """Names cannot be erased everywhere before rows of dropped months are back. Nothing was changed."""

    sentences: ClassVar[Mapping[str, str]] = {
        "names-in-files": "Superseded revisions of jobs of {months} still have these names, and whose they are, rows "
        "in the files of sealed months say alone: load these months back first, by drop_month MONTH --load --yes.",
    }


class InactiveUser(NamedTuple):
    tenant_id: int
    name: str


def list_inactive(
    before: datetime, *, tenant_id: int | None = None, names: Sequence[str] | None = None
) -> list[InactiveUser]:
    """Users whose jobs all ended before and whom nothing else names, by tenant; of one tenant or these names alone."""
    values = {
        "before": int(before.timestamp()),
        "tenant": tenant_id,
        "names": None if names is None else list(names),
    }
    with connection.cursor() as cursor:
        cursor.execute(sql.INACTIVE, values)
        return [InactiveUser(*row) for row in cursor]


def number_users(tenant_id: int) -> None:
    """Give each user that anything was billed for a number; whoever has one keeps it."""
    with connection.cursor() as cursor:
        cursor.execute(sql.NUMBER_BILLED, {"tenant": tenant_id})


@transaction.atomic
def erase_users(tenant: Tenant, *, names: Sequence[str] | None = None) -> int:
    """Replace the names of the users of the tenant's jobs by their numbers, everywhere; how many. Again, none is left.

    `names`: of these users alone. Digests, signatures and sums stay: what is signed has the numbers alone. A block that
    stands keeps its user, whose jobs it has to release. For a caller that holds the tenant's lock. Raises
    NamesInFilesError: a name that was called erased would stay in revisions for good.
    """
    users = list(names) if names is not None else _list_users(tenant)
    values: dict[str, Any] = {"tenant": tenant.pk, "names": users}
    trigger = "billing.RatedJob:billed_job_is_kept_before_it_changes"
    with connection.cursor() as cursor:
        cursor.execute(sql.KEPT_IN_REVISIONS, values | {"all": names is None})
        if (months := cursor.fetchone()[0]) is not None:
            raise NamesInFilesError("names-in-files", months=months)
        cursor.execute(sql.NUMBER, values)
        with connection.chunked_cursor() as records:
            records.execute(sql.RECORDS, values)
            while rows := records.fetchmany(SLICE):
                ledger.rename_users(rows)
        with pgtrigger.ignore(trigger):  # the old name is not to be kept
            cursor.execute(_RENAME_JOBS, [tenant.pk, tenant.pk, users])
        for table in ("billing_billedjob", "billing_quota", *_WALLETS, *_FINDINGS):
            cursor.execute(_RENAME.format(table=table), [tenant.pk, users])
        forget = (sql.FORGET_EFFICIENCY, sql.FORGET_RUN_COUNTS, sql.FORGET)
        for statement in (sql.RENAME_BLOCKS, sql.RENAME_SERIES, *forget):
            cursor.execute(statement, values)
        count = int(cursor.rowcount)
        cursor.execute(sql.TRANSACTION)
        erasure, begun_at = cursor.fetchone()
    Preview.objects.filter(kind=PreviewKind.DOCUMENTS, inputs__tenant=tenant.slug).delete()
    outbox.add("billing.reports.tasks.forget_efficiency", tenant_id=tenant.pk)
    outbox.add(
        "billing.reports.tasks.forget_names_in_focus_exports", erasure=erasure, begun_at=begun_at.isoformat()
    )
    return count


def _list_users(tenant: Tenant) -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute(sql.USERS, {"tenant": tenant.pk})
        return [name for (name,) in cursor]
