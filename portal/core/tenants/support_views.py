"""An operator looks at a tenant as it sees itself: with a reason, for an hour, changing nothing, seen by the tenant."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import transaction

from portal.core.tenants.access import DeniedError, Right, rights_of
from portal.core.tenants.models import SupportView, Tenant, User
from portal.core.tenants.team import TeamError

VALID_FOR = timedelta(hours=1)
LONGEST_REASON = 300


@transaction.atomic
def begin_view(*, tenant: Tenant, user: User, reason: str, moment: datetime) -> SupportView:
    """Begin one; it ends any other of the person. Each call begins another one.

    Raises TeamError without a reason, and DeniedError for somebody whose role does not read the history, as owners do.
    """
    if Right.AUDIT not in rights_of(user):
        raise DeniedError("the role does not read the history")
    words = " ".join(reason.split())[:LONGEST_REASON]
    if not words:
        raise TeamError("no-reason")
    SupportView.objects.filter(viewer=user.email, ended_at=None, expires_at__gt=moment).update(
        ended_at=moment
    )
    return SupportView.objects.create(
        tenant=tenant, viewer=user.email, reason=words, begun_at=moment, expires_at=moment + VALID_FOR
    )


def end_view(*, view: SupportView, moment: datetime) -> None:
    """A second call changes nothing."""
    SupportView.objects.filter(pk=view.pk, ended_at=None).update(ended_at=moment)


def current_view(*, number: int, user: User, moment: datetime) -> SupportView | None:
    """The person's view of that number while it holds, and the role allows one. One query."""
    if Right.AUDIT not in rights_of(user):
        return None
    rows = SupportView.objects.select_related("tenant").filter(viewer=user.email, ended_at=None)
    return rows.filter(pk=number, expires_at__gt=moment).first()
