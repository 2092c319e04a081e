"""Sending notices: each is claimed by a commit before it is sent, and never sent again automatically.

A process that dies between the two leaves a notice of which nobody knows whether it arrived: people decide. Where no
mail server is named, notices are written and kept, in one transaction.
"""

from __future__ import annotations

import smtplib
from datetime import datetime, timedelta

import structlog
from django.conf import settings
from django.core.mail import get_connection
from django.core.mail.backends.base import BaseEmailBackend
from django.db import transaction
from django.db.models import Window
from django.db.models.functions import RowNumber

from billing.dunning import overdue_invoices
from billing.emails import claims, mail_server, personal_emails
from billing.emails.claims import SendTally
from billing.emails.messages import SENTENCES
from billing.emails.personal_emails import Group
from billing.models import Notice, NoticeDelivery, NoticeState, OperatorDelivery
from billing.notifications import distribution, document_notices
from billing.notifications.recipients import QUOTA_KINDS
from portal.errors import CodedError

AT_ONCE = 200
UNTOLD = timedelta(minutes=10)
"""After so long a notice that was given to the mail server without an answer is somebody's to look at."""
log = structlog.get_logger("billing.dunning")


class NoticeError(CodedError):
    """A notice cannot be sent again; the message says why."""

    sentences = SENTENCES


def send_notices(*, moment: datetime) -> SendTally:
    """Send what waits: to tenants, and what waited for single people. By two at once, or again after a kill, nothing
    is sent twice.

    Must not be called inside a transaction.
    """
    done = SendTally()
    try:
        distribution.distribute(moment=moment)
    except Exception as error:  # what it has not come to waits; the rest is sent
        log.exception("notices not distributed")
        done.troubles.append(f"Notices could not be distributed: {type(error).__name__}: the log says more.")
    is_locked = bool(overdue_invoices.lockout_reason())  # nobody knows what is paid
    notice_ids, groups = _list_due(moment, is_locked=is_locked), personal_emails.list_due(moment)
    if not notice_ids and not groups:
        return done
    server = get_connection() if settings.CLUSTERTAB_SENDS_MAIL else None
    try:
        for pk in notice_ids:
            if server is not None:
                mail_server.connect(server)
            _send_claimed(pk, server, done, moment)
        for group in groups:
            if server is not None:
                mail_server.connect(server)
            _send_group(group, server, done, moment)
    except (OSError, smtplib.SMTPException) as error:  # before anything was claimed
        done.troubles.append(f"The mail server cannot be reached: {error}")
        Notice.objects.filter(pk__in=notice_ids, state=NoticeState.WAITING).update(reason=done.troubles[-1])
    finally:
        if server is not None:
            server.close()
    return done


def _list_due(moment: datetime, *, is_locked: bool) -> list[int]:
    waiting = Notice.objects.filter(state=NoticeState.WAITING, distributed=True, not_before__lte=moment)
    if is_locked:  # a document says what it says
        waiting = waiting.filter(kind__in=[*document_notices.KINDS, *QUOTA_KINDS])
    # One of each tenant, then the second of each: who has hundreds delays nobody else's.
    turn = Window(RowNumber(), partition_by="tenant", order_by=("not_before", "pk"))
    return list(waiting.order_by(turn, "not_before", "pk").values_list("pk", flat=True)[:AT_ONCE])


def _send_claimed(pk: int, server: BaseEmailBackend | None, done: SendTally, moment: datetime) -> None:
    """One's trouble stops no other."""
    try:
        notices = claims.claim_email(pk, done, moment)
        if notices and server is not None:
            mail_server.hand_over(notices, server, done, moment)
    except Exception as error:
        log.exception("notice not written", notice=pk)
        why = f"{type(error).__name__}: the log says more."
        claims.failed_to_write(pk, why, moment)
        done.troubles.append(f"Notice {pk}: {why}")


def _send_group(group: Group, server: BaseEmailBackend | None, done: SendTally, moment: datetime) -> None:
    """One's trouble stops no other."""
    try:
        rows = personal_emails.claim_email(group, done, moment)
        if rows and server is not None:
            mail_server.hand_over(rows, server, done, moment)
    except Exception as error:
        log.exception("deliveries not written", user=group.user)
        why = f"{type(error).__name__}: the log says more."
        personal_emails.failed_to_write(group, why, moment)
        done.troubles.append(f"Deliveries to user {group.user}: {why}")


@transaction.atomic
def resend_notice(*, notice: Notice | NoticeDelivery | OperatorDelivery, moment: datetime) -> None:
    """Have a notice sent once more that failed, or of which nobody knows whether it arrived; or one that was only kept.

    Raises NoticeError for any other, and for one that is being sent at this moment.
    """
    rows = type(notice)._default_manager.select_for_update(of=("self",))
    row: Notice | NoticeDelivery | OperatorDelivery = rows.get(pk=notice.pk)
    stuck = row.state == NoticeState.SENDING and row.sent_at is not None and row.sent_at < moment - UNTOLD
    was_drafted = row.state == NoticeState.DRAFTED and settings.CLUSTERTAB_SENDS_MAIL
    if row.state != NoticeState.FAILED and not stuck and not was_drafted:
        raise NoticeError("not-sent-again", notice=row, state=row.get_state_display().lower())
    row.state, row.not_before, row.tries, row.sent_at = NoticeState.WAITING, moment, 0, None
    row.reason = ""
    if isinstance(row, Notice):
        row.details |= {"at_once": True}
    row.save()
