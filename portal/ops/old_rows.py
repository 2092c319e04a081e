"""Erasing what has stood for its years: in slices of a transaction each, so that a kill anywhere leaves whole ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import groupby
from typing import Any, Protocol

from allauth.usersessions.models import UserSession
from django.contrib.sessions.models import Session
from django.db import transaction
from django.db.models import Q, QuerySet

from billing.catalog.tenant_lock import lock
from billing.documents import job_users
from billing.models import Erasure, Notice, NoticeDelivery, NoticeState, OperatorDelivery
from clusters.models import Quarantined
from portal.core.audit.erasure import erase_names
from portal.core.outbox.models import OutboxMessage
from portal.core.tenants.models import Tenant

SLICE = 5_000  # rows of one transaction
USERS = 1_000  # of one tenant, whose jobs and history one transaction reads once
MAIL_SERVER = "What the mail server said of its address is erased."
ON_THEIR_WAY = (NoticeState.WAITING, NoticeState.SENDING)


class Erasable(Protocol):
    def count(self, before: datetime) -> int:
        """How many are left to erase."""

    def slices(self, before: datetime) -> Iterator[Callable[[], int]]:
        """Pieces of work, each for a transaction of its own; each says how many it erased."""


@dataclass(frozen=True)
class Rows:
    """`remaining`: what is still to be erased; `erase` takes rows out of that."""

    remaining: Callable[[datetime], QuerySet[Any]]
    erase: Callable[[QuerySet[Any]], int]

    def count(self, before: datetime) -> int:
        return self.remaining(before).count()

    def slices(self, before: datetime) -> Iterator[Callable[[], int]]:
        while keys := list(self.remaining(before).order_by("pk").values_list("pk", flat=True)[:SLICE]):
            yield partial(self.erase, self.remaining(before).filter(pk__in=keys))


class JobUsers:
    """Users of a tenant's jobs, all of which ended before; whom a member, a wallet or a standing budget names stays.

    A tenant that is not left goes on with those: a wallet under a number would no longer be found, and another be
    opened for whoever comes back.
    """

    def count(self, before: datetime) -> int:
        return len(job_users.list_inactive(before))

    def slices(self, before: datetime) -> Iterator[Callable[[], int]]:
        for tenant, rows in groupby(job_users.list_inactive(before), key=lambda user: user.tenant_id):
            names = [user.name for user in rows]
            for first in range(0, len(names), USERS):
                yield partial(self._erase, before, tenant, names[first : first + USERS])

    def _erase(self, before: datetime, tenant: int, names: list[str]) -> int:
        """Under the tenant's lock, those of them who have not come back meanwhile; from the history, too."""
        locked = lock(Tenant.objects.get(pk=tenant))
        names = [user.name for user in job_users.list_inactive(before, tenant_id=tenant, names=names)]
        if not names:
            return 0
        erased = job_users.erase_users(locked, names=names)
        erase_names(tenant_id=tenant, names=names)
        return erased


def _old_deliveries(model: type[NoticeDelivery | OperatorDelivery], before: datetime) -> QuerySet[Any]:
    return model._default_manager.filter(created_at__lt=before).exclude(state__in=ON_THEIR_WAY)


def _delete(rows: QuerySet[Any]) -> int:
    return rows.delete()[0]


def _erase_addresses(rows: QuerySet[Notice]) -> int:
    keys = list(rows.values_list("pk", flat=True))
    chosen = Notice.objects.filter(pk__in=keys)
    chosen.filter(reason__contains="@").update(reason=MAIL_SERVER)
    return chosen.update(to=[], refused={})


def _erase_raw(rows: QuerySet[Quarantined]) -> int:
    return rows.update(raw="", values={})


ERASABLE: dict[str, tuple[Erasable, ...]] = {
    "job-users": (JobUsers(),),
    "notices": (
        Rows(
            lambda before: (
                Notice.objects.filter(created_at__lt=before)
                .exclude(state__in=ON_THEIR_WAY)
                .exclude(Q(to=[]) & Q(refused={}) & ~Q(reason__contains="@"))
            ),
            _erase_addresses,
        ),
    ),
    "deliveries": tuple(
        Rows(partial(_old_deliveries, model), _delete) for model in (NoticeDelivery, OperatorDelivery)
    ),
    "sessions": (
        Rows(lambda before: UserSession.objects.filter(last_seen_at__lt=before), _delete),
        Rows(lambda before: Session.objects.filter(expire_date__lt=before), _delete),
    ),
    "outbox": (Rows(lambda before: OutboxMessage.objects.filter(done_at__lt=before), _delete),),
    "quarantine": (
        Rows(lambda before: Quarantined.objects.filter(resolved_at__lt=before).exclude(raw=""), _erase_raw),
    ),
}


def count(*, kind: str, before: datetime) -> int:
    """How many rows of the kind a run would erase."""
    return sum(part.count(before) for part in ERASABLE[kind])


def erase(*, kind: str, before: datetime, moment: datetime, reason: str) -> int:
    """Erase what is older of the kind; how many rows. Called again, or after a kill, what is left.

    The history has how many: the row of the run grows in the transaction of each slice.
    """
    run = Erasure(kind=kind, before=before, begun_at=moment, reason=reason)
    for part in ERASABLE[kind]:
        for work in part.slices(before):
            with transaction.atomic():
                if rows := work():  # else others have erased it meanwhile, or its users are back
                    run.rows += rows
                    run.save()
    return run.rows
