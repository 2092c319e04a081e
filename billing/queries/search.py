"""One search over what people have a number or a name of: jobs, invoices, users, tenants, payments and transfers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import Q, QuerySet

from billing.models import Invoice, Payment, RatedJob, Transfer
from clusters import absent_records
from portal.core.tenants.models import Tenant, User
from portal.prepared import instances, prepared_cursor
from portal.sql_files import Statements

sql = Statements(__file__, "search.sql")

MOST = 10  # of each kind
LONGEST = 80  # characters


@dataclass(frozen=True, slots=True)
class JobHit:
    row: RatedJob
    slug: str
    tenant: str


@dataclass(frozen=True, slots=True)
class UserHit:
    """A user of the scheduler, in a tenant."""

    name: str
    slug: str
    tenant: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Hits:
    """MOST of each kind at most, and one more where there are more."""

    jobs: Sequence[JobHit] = ()
    invoices: Sequence[Invoice] = ()
    users: Sequence[UserHit] = ()
    payments: Sequence[Payment] = ()
    tenants: Sequence[Tenant] = ()
    people: Sequence[User] = ()
    transfers: Sequence[Transfer] = ()
    not_searched: str = ""  # months, as text, of which jobs are only in files that were not looked at

    @property
    def count(self) -> int:
        return sum(len(getattr(self, name)) for name in Hits.__slots__ if name != "not_searched")


def of_tenant(tenant: Tenant, text: str, *, invoices: bool) -> Hits:
    """What the tenant has by that text; without `invoices` neither these nor payments. Five queries at most.

    Runs inside the tenant's scope: of others it tells nothing, not even that they are there. Jobs of dropped months are
    looked for in the tenant's files.
    """
    if not text:
        return Hits()
    own = Invoice.objects.filter(tenant=tenant)
    left_out = absent_records.show_numbered(text, most=MOST + 1)
    return Hits(
        jobs=_jobs(text, tenant),
        users=_users(text, tenant),
        invoices=_invoices(own.filter(number__istartswith=text)) if invoices else (),
        payments=list(
            Payment.objects.filter(tenant=tenant, reference__icontains=text)
            .select_related("invoice")
            .order_by("-received_on", "-pk")[: MOST + 1]
        )
        if invoices
        else (),
        not_searched=absent_records.months_text(left_out),
    )


def of_everybody(text: str) -> Hits:
    """What anybody has by that text, for operators. Nine queries at most. Of dropped months it finds no job."""
    if not text:
        return Hits()
    written = Q(payer__icontains=text) | Q(text__icontains=text) | Q(reference__icontains=text)
    banks = Q(bank_reference__icontains=text) | Q(end_to_end__icontains=text) | Q(key=text)
    return Hits(
        jobs=_jobs(text, None),
        users=_users(text, None),
        # Both as they are written, so that an index knows them.
        invoices=_invoices(
            Invoice.objects.filter(Q(number__startswith=text) | Q(number__startswith=text.upper()))
        ),
        tenants=list(
            Tenant.objects.filter(Q(slug__icontains=text) | Q(name__icontains=text)).order_by("name", "pk")[
                : MOST + 1
            ]
        ),
        people=list(
            User.objects.filter(email__icontains=text)
            .prefetch_related("memberships__tenant")
            .order_by("email")[: MOST + 1]
        ),
        transfers=list(Transfer.objects.filter(written | banks).order_by("-booked_on", "-pk")[: MOST + 1]),
        not_searched=absent_records.months_text(absent_records.list_all()),
    )


def _jobs(text: str, tenant: Tenant | None) -> list[JobHit]:
    values = {"id": text, "tenant": tenant.pk if tenant else None, "most": MOST + 1}
    with prepared_cursor() as cursor:
        cursor.execute(sql.JOBS, values)
        return [JobHit(row, slug, name) for row, slug, name in instances(cursor, RatedJob)]


def _users(text: str, tenant: Tenant | None) -> list[UserHit]:
    values = {"user": text, "tenant": tenant.pk if tenant else None, "most": MOST + 1}
    with prepared_cursor() as cursor:
        cursor.execute(sql.USERS, values)
        return [UserHit(text, slug, name) for slug, name in cursor.fetchall()]


def _invoices(rows: QuerySet[Invoice]) -> list[Invoice]:
    return list(rows.select_related("tenant").order_by("-issued_on", "-pk")[: MOST + 1])
