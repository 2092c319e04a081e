"""Handing an e-mail over to the mail server: what it answers is kept with the rows that the e-mail is of."""

from __future__ import annotations

import smtplib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from email.utils import parseaddr

from django.conf import settings
from django.core.mail import EmailMultiAlternatives
from django.core.mail.backends.base import BaseEmailBackend

from billing.emails.claims import SendTally
from billing.emails.illustrated_email import IllustratedEmail
from billing.models import Notice, NoticeState, OperatorDelivery
from billing.models.notice_deliveries import PersonalDelivery
from billing.notifications import document_notices
from portal.core.tenants.brand import sender
from portal.smtp import Refusals

TRIES = 12
FIRST, LONGEST = timedelta(minutes=5), timedelta(hours=12)
"""To the next try of what the mail server refused; doubles with each."""
REFUSALS = (smtplib.SMTPResponseException, smtplib.SMTPRecipientsRefused, smtplib.SMTPNotSupportedError)
"""The mail server, or our client for it, said no: nothing was handed over."""
UNWRITABLE = (
    "An address is none that e-mail can go to: correct the tenant's billing e-mail, then send it again."
)
Outgoing = Sequence[Notice | PersonalDelivery]


def connect(server: BaseEmailBackend) -> None:
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


def hand_over(rows: Outgoing, server: BaseEmailBackend, done: SendTally, moment: datetime) -> None:
    """Send the one e-mail of these rows, which are committed as being sent, and keep what became of it."""
    table = type(rows[0])._default_manager
    claimed = table.filter(pk__in=[row.pk for row in rows], state=NoticeState.SENDING)
    try:
        _make_message(rows, server).send()
    except REFUSALS as error:
        tries = max(row.tries for row in rows)
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
        done.troubles.append(f"{rows[0]}: {why}")
    except ValueError as error:  # before anything was handed over
        claimed.update(state=NoticeState.FAILED, reason=UNWRITABLE)
        done.troubles.append(f"{rows[0]}: {error}")
    except (OSError, smtplib.SMTPException) as error:
        claimed.update(reason=f"The mail server did not answer: it may have arrived or not. {error}")
        done.troubles.append(f"{rows[0]}: {error}")
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


def _make_message(rows: Outgoing, server: BaseEmailBackend) -> EmailMultiAlternatives:
    """Under the same id each time, that of the oldest, so that a mailbox knows it again."""
    row: Notice | PersonalDelivery = min(rows, key=lambda row: row.pk)
    host = parseaddr(settings.DEFAULT_FROM_EMAIL)[1].partition("@")[2] or "localhost"
    prefix = "notice" if isinstance(row, Notice) else "delivery"
    if isinstance(row, OperatorDelivery):
        prefix = "operator"
    name = f"<{prefix}-{row.pk}.{row.created_at:%Y%m%d%H%M%S}@{host}>"
    mail = IllustratedEmail(
        row.subject, row.text, sender(), row.to, headers={"Message-ID": name}, connection=server
    )
    mail.attach_html(row.html)
    for attached in document_notices.load_attachments(row) if isinstance(row, Notice) else ():
        mail.attach(*attached)
    return mail
