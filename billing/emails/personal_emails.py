"""E-mails to one person: what waits for them is looked at once more, made one e-mail, and committed as being sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import structlog
from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet

from billing.dunning import overdue_invoices
from billing.emails import claims, composition, digest_text
from billing.emails.claims import SendTally
from billing.emails.composition import Email
from billing.emails.merged_quotas import merge_quotas
from billing.emails.quota_text import NOTHING_LEFT
from billing.models import (
    Notice,
    NoticeDelivery,
    NoticeKind,
    NoticeState,
    NoticeTiming,
    OperatorDelivery,
)
from billing.models.notice_deliveries import PersonalDelivery
from billing.notifications import document_notices
from billing.notifications.recipients import QUOTA_KINDS, list_notice_recipients
from portal.core.tenants.models import Membership, Tenant, User
from portal.languages import in_language

AT_ONCE = 200
MOST = 500
"""Notices of one e-mail; what is more goes out with the next."""
NOT_THEIRS = "It is no longer for this person: they left, or its recipients changed."
NO_OPERATOR = "Its reader is no operator any more."
log = structlog.get_logger("billing.dunning")


@dataclass(frozen=True, slots=True)
class Group:
    """Whose deliveries become one e-mail: of a member in one tenant, or of an operator over all (`tenant` is None)."""

    user: int
    tenant: int | None

    def rows(self) -> QuerySet[Any]:
        if self.tenant is None:
            return OperatorDelivery.objects.filter(user=self.user)
        return NoticeDelivery.objects.filter(user=self.user, tenant=self.tenant)

    def waiting(self) -> QuerySet[Any]:
        """The oldest first, with what their text needs."""
        rows = self.rows().filter(state=NoticeState.WAITING).order_by("notice", "pk")
        return rows.select_related(
            "notice__tenant",
            "notice__invoice__tenant",
            "notice__attempt__method",
            "notice__attempt__invoice",
            "notice__attempt__top_up__wallet",
        )


@dataclass(frozen=True, slots=True)
class Draft:
    """An e-mail of deliveries, as it would be sent now; without one, nothing is left to send. `dropped`: why not."""

    email: Email | None
    sent: Sequence[PersonalDelivery]
    dropped: Sequence[tuple[PersonalDelivery, str]]


def list_due(moment: datetime) -> list[Group]:
    """Whom something is due to be sent to. Two queries."""
    due = {"state": NoticeState.WAITING, "not_before__lte": moment}
    members = NoticeDelivery.objects.filter(**due).order_by("user", "tenant").values_list("user", "tenant")
    operators = OperatorDelivery.objects.filter(**due).order_by("user").values_list("user", flat=True)
    return [
        *(Group(user, tenant) for user, tenant in members.distinct()[:AT_ONCE]),
        *(Group(user, None) for user in operators.distinct()[:AT_ONCE]),
    ]


@transaction.atomic
def claim_email(group: Group, done: SendTally, moment: datetime) -> Sequence[PersonalDelivery]:
    """The deliveries of one e-mail, committed as being sent; none where somebody else has them, or nothing of them
    holds any more. The person's row is locked, so that no two workers make two e-mails of one."""
    people = User.objects.select_for_update(no_key=True, skip_locked=True)
    user = people.filter(pk=group.user).first()
    if user is None:
        return []
    waiting = group.waiting().filter(not_before__lte=moment)
    rows = list(waiting.select_for_update(of=("self",), skip_locked=True)[:MOST])
    draft = write_draft(group, rows, user, moment)
    for row, reason in draft.dropped:
        row.state, row.reason = NoticeState.SKIPPED, reason
        row.save()
    done.skipped += len(draft.dropped)
    if draft.email is None:
        return []
    for place, row in enumerate(draft.sent):
        row.state = NoticeState.SENDING if settings.CLUSTERTAB_SENDS_MAIL else NoticeState.DRAFTED
        row.to, row.sent_at, row.reason, row.refused = [user.email], moment, "", {}
        row.subject = draft.email.subject
        row.first = draft.sent[0] if place else None
        row.text, row.html = ("", "") if place else (draft.email.text, draft.email.html)
        row.save()
    done.drafted += 0 if settings.CLUSTERTAB_SENDS_MAIL else 1
    return draft.sent


def write_draft(
    group: Group, rows: Sequence[PersonalDelivery], user: User, moment: datetime, *, checks: bool = True
) -> Draft:
    """The e-mail of these as things are now; nothing is changed. Without `checks`, as a page previews it, only what is
    said of budgets is looked at once more: the rest asks several questions a notice."""
    if group.tenant is None:
        return _draft_for_operator(rows, user, moment, checks=checks)
    return _draft_for_member(rows, user, moment, checks=checks)


def _draft_for_member(
    rows: Sequence[PersonalDelivery], user: User, moment: datetime, *, checks: bool
) -> Draft:
    recipients = _Recipients(user)
    dropped: list[tuple[PersonalDelivery, str]] = []
    left: list[PersonalDelivery] = []
    for row in rows:
        reason = "" if recipients.has(row.notice) else NOT_THEIRS
        if not reason and checks and row.notice.kind != NoticeKind.QUOTA:
            reason = claims.skip_reason(row.notice, moment)
        if reason:
            dropped.append((row, reason))
        else:
            left.append(row)
    quotas = [row for row in left if row.notice.kind == NoticeKind.QUOTA]
    merged, places = merge_quotas([row.notice for row in quotas], moment=moment) if quotas else ([], set())
    dropped += [(row, NOTHING_LEFT) for place, row in enumerate(quotas) if place not in places]
    gone = {row.pk for row, _reason in dropped}
    left = [row for row in left if row.pk not in gone]
    if not left:
        return Draft(None, [], dropped)
    tenant = left[0].notice.tenant
    notices = [row.notice for row in left if row.notice.kind != NoticeKind.QUOTA]
    if merged:
        notices.insert(0, Notice(tenant=tenant, kind=NoticeKind.QUOTA, details={"quotas": merged}))
    with in_language(tenant.language):
        email = digest_text.compose_member_email(notices, tenant, moment=moment)
    return Draft(email, left, dropped)


class _Recipients:
    """Whether notices of one tenant are for somebody still: asked once for those with the same recipients."""

    def __init__(self, user: User) -> None:
        self.user = user
        self.answers: dict[tuple[object, ...], bool] = {}

    def has(self, notice: Notice) -> bool:
        """Whether they are a member, and among its recipients."""
        key = (notice.tenant_id, notice.kind, *notice.details.get("members", ()))
        if key not in self.answers:
            self.answers[key] = self._has(notice)
        return self.answers[key]

    def _has(self, notice: Notice) -> bool:
        if not self.user.is_active:
            return False
        if self.user.email.lower() not in {email.lower() for email in list_notice_recipients(notice)}:
            return False
        return Membership.objects.filter(tenant=notice.tenant_id, user=self.user).exists()


def _draft_for_operator(
    rows: Sequence[PersonalDelivery], user: User, moment: datetime, *, checks: bool
) -> Draft:
    if not user.is_active or not user.operator_role:
        return Draft(None, [], [(row, NO_OPERATOR) for row in rows])
    is_locked = checks and bool(overdue_invoices.lockout_reason())  # nobody knows what is paid
    dropped: list[tuple[PersonalDelivery, str]] = []
    left: list[tuple[PersonalDelivery, str]] = []
    for row in rows:
        notice = row.notice
        if is_locked and notice.kind not in {*document_notices.KINDS, *QUOTA_KINDS}:
            continue  # it waits
        if checks and claims.pause_reason(notice, moment):
            continue
        if reason := _reason_of_notice(notice, moment, checks=checks):
            dropped.append((row, reason))
        else:
            left.append((row, _subject_of(notice, moment)))
    if not left:
        return Draft(None, [], dropped)
    lines: list[tuple[Tenant, str]] = [(row.notice.tenant, subject) for row, subject in left]
    is_digest = any(row.waits_for == NoticeTiming.DIGEST for row, _subject in left)
    email = digest_text.compose_operator_email(
        lines[: digest_text.SHOWN], user, is_digest=is_digest, total=len(lines)
    )
    return Draft(email, [row for row, _subject in left], dropped)


def _reason_of_notice(notice: Notice, moment: datetime, *, checks: bool) -> str:
    """Why the notice itself is not sent; that its own readers have it later, or that there are none, is no reason."""
    if notice.state == NoticeState.SKIPPED and notice.reason not in (claims.LATER, claims.NOBODY):
        return notice.reason
    try:
        return claims.skip_reason(notice, moment) if checks else ""
    except Exception:  # one that cannot be looked at stops no digest
        log.exception("notice not looked at", notice=notice.pk)
        return ""


def _subject_of(notice: Notice, moment: datetime) -> str:
    """As it was sent, or would be."""
    if notice.subject:
        return notice.subject
    try:
        return composition.compose_email([notice], moment=moment).subject
    except Exception:  # one that cannot be written stops no digest
        log.exception("notice not written", notice=notice.pk)
        return notice.get_kind_display()


def failed_to_write(group: Group, reason: str, moment: datetime) -> None:
    """Put off what could not be written: it stops no other e-mail."""
    rows = group.rows().filter(state=NoticeState.WAITING, not_before__lte=moment)
    rows.update(not_before=moment + claims.REST, reason=reason)
