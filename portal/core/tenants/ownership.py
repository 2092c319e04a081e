"""Whose account it was, and when."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import datetime

from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet

from clusters.models import Account, Cluster
from portal.core.tenants.messages import SENTENCES
from portal.core.tenants.models import Ownership, Project, Tenant
from portal.errors import CodedError

LONGEST_PROJECT = 200  # characters; a scheduler's account may have more
LEFT = "tenant_that_left_owns_no_account"


class OwnershipConflictError(CodedError):
    """The account cannot be the tenant's then; the message says why, and how to mend it."""

    sentences = SENTENCES


@transaction.atomic
def assign(
    *,
    account: Account,
    tenant: Tenant,
    project: str = "",
    since: datetime | None = None,
    until: datetime | None = None,
) -> Ownership:
    """Give the account to the tenant during [since, until); empty bounds are open.

    Whoever owns it at `since` gives it up at that moment and has it back at `until`. Asked again, the
    same ownership. Usage is not rewritten: the caller rates the account again. Raises
    OwnershipConflictError where another ownership begins within the time asked for, and where the
    tenant has left before its end.
    """
    Account.objects.select_for_update(no_key=True).get(pk=account.pk)
    name = project or account.name[:LONGEST_PROJECT] or "default"
    cost_centre, _ = Project.objects.get_or_create(tenant=tenant, name=name)
    same = Ownership.objects.filter(
        account=account, tenant=tenant, project=cost_centre, since=since, until=until
    ).first()
    if same is not None:
        return same
    for present in _overlapping(account, since, until):
        if since is None or (present.since is not None and present.since >= since):
            raise _overlap("owned-already", present, account)
        rest = until if until is not None and (present.until is None or present.until > until) else None
        ends, present.until = present.until, since
        present.save(update_fields=["until"])
        if rest is not None:
            back = {"tenant": present.tenant, "project": present.project}
            Ownership.objects.create(account=account, since=rest, until=ends, **back)
    with _none_that_left(account, tenant):
        return Ownership.objects.create(
            account=account, tenant=tenant, project=cost_centre, since=since, until=until
        )


@transaction.atomic
def amend(*, ownership: Ownership, since: datetime | None, until: datetime | None) -> Ownership:
    """Move the borders of an ownership; asked again, nothing changes. The caller rates the account again.

    Raises OwnershipConflictError where somebody else owns the account meanwhile, or the tenant has left.
    """
    account = Account.objects.select_for_update(no_key=True).get(pk=ownership.account_id)
    if since is not None and until is not None and until <= since:
        raise OwnershipConflictError("ends-before-it-begins", account=account)
    for other in _overlapping(account, since, until):
        if other.pk != ownership.pk:
            raise _overlap("overlap", other, account)
    if (ownership.since, ownership.until) != (since, until):
        ownership.since, ownership.until = since, until
        with _none_that_left(account, ownership.tenant):
            ownership.save(update_fields=["since", "until"])
    return ownership


@contextmanager
def _none_that_left(account: Account, tenant: Tenant) -> Iterator[None]:
    """Say in words what the database refuses, which alone knows who has left."""
    try:
        with transaction.atomic():  # so that names can be asked for
            yield
    except IntegrityError as error:
        if getattr(getattr(error.__cause__, "diag", None), "constraint_name", None) != LEFT:
            raise
        raise OwnershipConflictError("left", tenant=tenant.slug, account=account) from error


def _overlapping(account: Account, since: datetime | None, until: datetime | None) -> list[Ownership]:
    overlap = Q(account=account)
    if since is not None:
        overlap &= Q(until__isnull=True) | Q(until__gt=since)
    if until is not None:
        overlap &= Q(since__isnull=True) | Q(since__lt=until)
    return list(Ownership.objects.filter(overlap).select_related("tenant").order_by("since", "pk"))


def _overlap(code: str, other: Ownership, account: Account) -> OwnershipConflictError:
    since = OwnershipConflictError("since" if other.since else "from-the-beginning", moment=other.since)
    until = OwnershipConflictError("until" if other.until else "for-ever", moment=other.until)
    return OwnershipConflictError(code, account=account, tenant=other.tenant.slug, since=since, until=until)


def accounts_of(tenant: Tenant, *, at: datetime) -> QuerySet[Ownership, int]:
    """The accounts that it owns at that moment, or will."""
    rows = Ownership.objects.filter(Q(until=None) | Q(until__gt=at), tenant=tenant)
    return rows.values_list("account", flat=True)


def owners_of(cluster: Cluster, names: Collection[str], *, at: datetime) -> dict[str, Tenant]:
    """Who owns these accounts of a cluster at that moment, by name; none of those that nobody owns. One query."""
    rows = Ownership.objects.filter(Q(since=None) | Q(since__lte=at), Q(until=None) | Q(until__gt=at))
    rows = rows.filter(account__cluster=cluster, account__name__in=[*names])
    return {row.account.name: row.tenant for row in rows.select_related("account", "tenant")}
