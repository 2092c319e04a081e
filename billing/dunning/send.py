"""Sending notices: each is claimed by a commit before it is sent, and never sent again by itself.

A process that dies between the two leaves a notice of which nobody knows whether it arrived: people decide. Where no
mail server is named, notices are written and kept, in one transaction.
"""

from __future__ import annotations

import smtplib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from email.utils import parseaddr

import structlog
from django.conf import settings
from django.core.mail import EmailMultiAlternatives, get_connection
from django.core.mail.backends.base import BaseEmailBackend
from django.db import transaction

from billing.dunning import claims, compose_quotas, document_notices, overdue_invoices
from billing.dunning.claims import SendTally
from billing.dunning.messages import SENTENCES
from billing.models import Notice, NoticeState
from portal.errors import CodedError
from portal.smtp import Refusals

AT_ONCE = 200
TRIES = 12
FIRST, LONGEST = timedelta(minutes=5), timedelta(hours=12)
"""To the next try of what the mail server refused; doubles with each."""
UNTOLD = timedelta(minutes=10)
"""After so long a notice that was given to the mail server without an answer is somebody's to look at."""
REFUSALS = (smtplib.SMTPResponseException, smtplib.SMTPRecipientsRefused, smtplib.SMTPNotSupportedError)
"""The mail server, or our client for it, said no: nothing was handed over."""
UNWRITABLE = (
    "An address is none that e-mail can go to: correct the tenant's billing e-mail, then send it again."
)
log = structlog.get_logger("billing.dunning")


class NoticeError(CodedError):
    """A notice cannot be sent again; the message says why."""

    sentences = SENTENCES


def send_notices(*, moment: datetime) -> SendTally:
    """Send what waits. By two at once, or again after a kill, no notice is sent twice.

    Must not be called inside a transaction.
    """
    done = SendTally()
    waiting = Notice.objects.filter(state=NoticeState.WAITING, not_before__lte=moment)
    if overdue_invoices.lockout_reason():  # nobody knows what is paid; a document says what it says
        waiting = waiting.filter(kind__in=[*document_notices.KINDS, *compose_quotas.KINDS])
    notice_ids = list(waiting.order_by("not_before", "pk").values_list("pk", flat=True)[:AT_ONCE])
    if not notice_ids:
        return done
    server = get_connection() if settings.CLUSTERTAB_SENDS_MAIL else None
    try:
        for pk in notice_ids:
            if server is not None:
                _connect(server)
            _send_claimed(pk, server, done, moment)
    except (OSError, smtplib.SMTPException) as error:  # before anything was claimed
        done.troubles.append(f"The mail server cannot be reached: {error}")
        Notice.objects.filter(pk__in=notice_ids, state=NoticeState.WAITING).update(reason=done.troubles[-1])
    finally:
        if server is not None:
            server.close()
    return done


def _connect(server: BaseEmailBackend) -> None:
    """Have a connection that answers before a notice is claimed: servers close theirs after so many mails, or in a
    trouble, and what is then claimed for it would be said to be lost though nobody was handed it."""
    connection = getattr(server, "connection", None)
    if connection is not None and not _answers(connection):
        with suppress(OSError):
            server.close()
    server.open()


def _answers(connection: smtplib.SMTP) -> bool:
    try:
        return connection.noop()[0] == 250
    except OSError:
        return False


def _send_claimed(pk: int, server: BaseEmailBackend | None, done: SendTally, moment: datetime) -> None:
    """One's trouble stops no other."""
    try:
        _send_email(pk, server, done, moment)
    except Exception as error:
        log.exception("notice not written", notice=pk)
        why = f"{type(error).__name__}: the log says more."
        claims.failed_to_write(pk, why, moment)
        done.troubles.append(f"Notice {pk}: {why}")


def _send_email(pk: int, server: BaseEmailBackend | None, done: SendTally, moment: datetime) -> None:
    notices = claims.claim_email(pk, done, moment)
    if not notices or server is None:
        return
    claimed = Notice.objects.filter(pk__in=[notice.pk for notice in notices], state=NoticeState.SENDING)
    try:
        _make_message(notices, server).send()
    except REFUSALS as error:
        tries = max(notice.tries for notice in notices)
        why, refused = f"The mail server refused it: {error}", _describe_refusals(None)
        if isinstance(error, smtplib.SMTPRecipientsRefused):
            refused = _describe_refusals(error.recipients)
            why = "The mail server refused " + "; ".join(f"{to}: {answer}" for to, answer in refused.items())
        claimed.update(
            state=NoticeState.FAILED if tries + 1 >= TRIES else NoticeState.WAITING,
            tries=tries + 1,
            not_before=moment + min(FIRST * (1 << min(tries, 16)), LONGEST),
            reason=why,
            refused=refused,
        )
        done.troubles.append(f"{notices[0]}: {why}")
    except ValueError as error:  # before anything was handed over
        claimed.update(state=NoticeState.FAILED, reason=UNWRITABLE)
        done.troubles.append(f"{notices[0]}: {error}")
    except (OSError, smtplib.SMTPException) as error:
        claimed.update(reason=f"The mail server did not answer: it may have arrived or not. {error}")
        done.troubles.append(f"{notices[0]}: {error}")
    else:
        refused = _describe_refusals(getattr(getattr(server, "connection", None), "refused", None))
        claimed.update(state=NoticeState.SENT, reason="", refused=refused)
        done.sent += 1


def _describe_refusals(refused: Refusals | None) -> Mapping[str, str]:
    """By address what the mail server said of it."""
    return {
        to: f"{code} {answer.decode(errors='replace')}"[:200]
        for to, (code, answer) in (refused or {}).items()
    }


def _make_message(notices: Sequence[Notice], server: BaseEmailBackend) -> EmailMultiAlternatives:
    """Under the same id each time, that of the oldest, so that a mailbox knows it again."""
    notice = min(notices, key=lambda notice: notice.pk)
    sender = settings.DEFAULT_FROM_EMAIL
    host = parseaddr(sender)[1].partition("@")[2] or "localhost"
    name = f"<notice-{notice.pk}.{notice.created_at:%Y%m%d%H%M%S}@{host}>"
    mail = EmailMultiAlternatives(
        notice.subject, notice.text, sender, notice.to, headers={"Message-ID": name}, connection=server
    )
    mail.attach_alternative(notice.html, "text/html")
    for attached in document_notices.load_attachments(notice):
        mail.attach(*attached)
    return mail


@transaction.atomic
def resend_notice(*, notice: Notice, moment: datetime) -> Notice:
    """Have a notice sent once more that failed, or of which nobody knows whether it arrived; or one that was only kept.

    Raises NoticeError for any other, and for one that is being sent at this moment.
    """
    row = Notice.objects.select_for_update(of=("self",)).get(pk=notice.pk)
    stuck = row.state == NoticeState.SENDING and row.sent_at is not None and row.sent_at < moment - UNTOLD
    was_drafted = row.state == NoticeState.DRAFTED and settings.CLUSTERTAB_SENDS_MAIL
    if row.state != NoticeState.FAILED and not stuck and not was_drafted:
        raise NoticeError("not-sent-again", notice=row, state=row.get_state_display().lower())
    row.state, row.not_before, row.tries, row.sent_at = NoticeState.WAITING, moment, 0, None
    row.reason, row.details = "", row.details | {"at_once": True}
    row.save()
    return row
