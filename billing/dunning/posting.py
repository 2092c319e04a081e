"""Sending letters: each is claimed by a commit before it is sent, and never sent again by itself.

A process that dies between the two leaves a letter of which nobody knows whether it arrived: people decide. Where no
mail server is named, letters are written and kept, in one transaction.
"""

from __future__ import annotations

import smtplib
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from email.utils import parseaddr

import structlog
from django.conf import settings
from django.core.mail import EmailMultiAlternatives, get_connection
from django.core.mail.backends.base import BaseEmailBackend
from django.db import transaction

from billing import collection
from billing.dunning import crossings, standing, writing
from billing.models import (
    Invoice,
    Letter,
    LetterKind,
    LetterState,
    MethodState,
    PaymentAttempt,
    SavedMethod,
    Suspension,
)

AT_ONCE = 200
TRIES = 12
FIRST, LONGEST = timedelta(minutes=5), timedelta(hours=12)
"""To the next try of what the mail server refused; doubles with each."""
REST = timedelta(hours=1)
"""So long a letter waits that is about something that rests."""
UNTOLD = timedelta(minutes=10)
"""After so long a letter that was given to the mail server without an answer is somebody's to look at."""
REFUSALS = (smtplib.SMTPResponseException, smtplib.SMTPRecipientsRefused, smtplib.SMTPNotSupportedError)
"""The mail server, or our client for it, said no: nothing was handed over."""
UNWRITABLE = (
    "An address is none that e-mail can go to: correct the tenant's billing e-mail, then send it again."
)
OF_DEBTS = (
    LetterKind.REFUSED,
    LetterKind.CONFIRM,
    LetterKind.PAST_DUE,
    LetterKind.REMINDER,
    LetterKind.ANNOUNCE,
)

log = structlog.get_logger("billing.dunning")


@dataclass(slots=True)
class Posted:
    """What was done with letters, in numbers; `troubles` in sentences."""

    sent: int = 0
    kept: int = 0
    skipped: int = 0
    troubles: list[str] = field(default_factory=list)


class LetterError(Exception):
    """A letter cannot be sent again; the message says why."""


def post(*, moment: datetime) -> Posted:
    """Send what waits. By two at once, or again after a kill, no letter is sent twice.

    Must not be called inside a transaction.
    """
    done = Posted()
    if standing.locked_out():
        return done
    waiting = Letter.objects.filter(state=LetterState.WAITING, not_before__lte=moment)
    wanted = list(waiting.order_by("not_before", "pk").values_list("pk", flat=True)[:AT_ONCE])
    if not wanted:
        return done
    server = get_connection() if settings.CLUSTERTAB_SENDS_MAIL else None
    try:
        for pk in wanted:
            if server is not None:
                _reach(server)
            _one(pk, server, done, moment)
    except (OSError, smtplib.SMTPException) as error:  # before anything was claimed
        done.troubles.append(f"The mail server cannot be reached: {error}")
        Letter.objects.filter(pk__in=wanted, state=LetterState.WAITING).update(why=done.troubles[-1])
    finally:
        if server is not None:
            server.close()
    return done


def _reach(server: BaseEmailBackend) -> None:
    """Have a connection that answers before a letter is claimed: servers close theirs after so many mails, or in a
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


def _one(pk: int, server: BaseEmailBackend | None, done: Posted, moment: datetime) -> None:
    """One's trouble stops no other."""
    try:
        _post(pk, server, done, moment)
    except Exception as error:
        log.exception("letter not written", letter=pk)
        why = f"{type(error).__name__}: the log says more."
        waiting = Letter.objects.filter(pk=pk, state=LetterState.WAITING)
        waiting.update(not_before=moment + REST, why=why)
        done.troubles.append(f"Letter {pk}: {why}")


def _post(pk: int, server: BaseEmailBackend | None, done: Posted, moment: datetime) -> None:
    letter = _claimed(pk, server is not None, done, moment)
    if letter is None or server is None:
        return
    claimed = Letter.objects.filter(pk=pk, state=LetterState.SENDING)
    try:
        _mail(letter, server).send()
    except REFUSALS as error:
        wait = min(FIRST * (1 << min(letter.tries, 16)), LONGEST)
        over = letter.tries + 1 >= TRIES
        claimed.update(
            state=LetterState.FAILED if over else LetterState.WAITING,
            tries=letter.tries + 1,
            not_before=moment + wait,
            why=f"The mail server refused it: {error}",
        )
        done.troubles.append(f"{letter}: {error}")
    except ValueError as error:  # before anything was handed over
        claimed.update(state=LetterState.FAILED, why=UNWRITABLE)
        done.troubles.append(f"{letter}: {error}")
    except (OSError, smtplib.SMTPException) as error:
        claimed.update(why=f"The mail server did not answer: it may have arrived or not. {error}")
        done.troubles.append(f"{letter}: {error}")
    else:
        claimed.update(state=LetterState.SENT, why="")
        done.sent += 1


@transaction.atomic
def _claimed(pk: int, sends: bool, done: Posted, moment: datetime) -> Letter | None:
    """The letter as it is to be sent, committed as such; None where somebody else has it, or nobody needs it."""
    rows = Letter.objects.select_for_update(of=("self",), skip_locked=True).filter(
        pk=pk, state=LetterState.WAITING
    )
    letter = rows.select_related("tenant", "invoice__tenant", "attempt__method", "attempt__invoice").first()
    if letter is None:
        return None
    if why := _rests(letter, moment):
        letter.not_before, letter.why = moment + REST, why
        letter.save()
        return None
    if why := _not_needed(letter, moment):
        letter.state, letter.why = LetterState.SKIPPED, why
        letter.save()
        done.skipped += 1
        return None
    if letter.kind in standing.STEPS and letter.invoice is not None:
        letter.told |= _crossing(letter.invoice, moment)
    letter.to = writing.recipients(letter.tenant)
    if not letter.to:
        letter.state = LetterState.FAILED
        letter.why = "There is nobody to write to: give the tenant a billing e-mail or an owner."
        letter.save()
        return None
    written = writing.write(letter, moment=moment)
    letter.subject, letter.text, letter.html = written.subject, written.text, written.html
    letter.state = LetterState.SENDING if sends else LetterState.KEPT
    letter.sent_at, letter.why = moment, ""
    letter.save()
    done.kept += not sends
    return letter


def _crossing(invoice: Invoice, moment: datetime) -> dict[str, int | bool]:
    """Until when it counts: until that is settled. `again`: the first since it is due anew, which has to say so."""
    left = collection.balance(invoice=invoice, on=moment.date()).due.minor
    crossing = crossings.counted({invoice.pk: left})[invoice.pk]
    sent = (LetterState.SENDING, LetterState.SENT, LetterState.KEPT)
    told = Letter.objects.filter(invoice=invoice, told__crossing=crossing, state__in=sent)
    return {"crossing": crossing, "again": crossing > 0 and not told.exists()}


def _rests(letter: Letter, moment: datetime) -> str:
    if letter.invoice is None or letter.kind not in OF_DEBTS:
        return ""
    return standing.rests(invoice=letter.invoice, moment=moment)


def _not_needed(letter: Letter, moment: datetime) -> str:
    """What has happened since that makes it pointless, in a sentence; "" where nothing has."""
    if letter.kind in OF_DEBTS and letter.invoice is not None:
        stand = collection.balance(invoice=letter.invoice, on=moment.date())
        if stand.due.minor <= 0:
            return "Nothing is due any more."
    if letter.attempt is not None:
        newest = PaymentAttempt.objects.filter(invoice=letter.invoice).order_by("-made_at").first()
        return "" if newest == letter.attempt else "The payment has been tried again since."
    if letter.kind in {LetterKind.CARD_GONE, LetterKind.CARD_EXPIRED}:
        usable = SavedMethod.objects.filter(tenant=letter.tenant, state=MethodState.USABLE, preferred=True)
        known = usable.first()
        if known is not None and (
            letter.kind == LetterKind.CARD_GONE or str(known.pk) != letter.key.split(":")[1]
        ):
            return "Another card is charged by now."
    if letter.kind == LetterKind.ANNOUNCE and _suspended(letter):
        return "The tenant is suspended already."
    if letter.kind == LetterKind.SUSPENDED and not _suspended(letter):
        return "The suspension is over."
    if letter.kind == LetterKind.RESTORED and _suspended(letter):
        return "The tenant is suspended again."
    return ""


def _suspended(letter: Letter) -> bool:
    return Suspension.objects.filter(tenant=letter.tenant, ended_at=None).exists()


def _mail(letter: Letter, server: BaseEmailBackend) -> EmailMultiAlternatives:
    """The same id each time, so that a mailbox knows it again."""
    sender = settings.DEFAULT_FROM_EMAIL
    host = parseaddr(sender)[1].partition("@")[2] or "localhost"
    name = f"<letter-{letter.pk}.{letter.made_at:%Y%m%d%H%M%S}@{host}>"
    mail = EmailMultiAlternatives(
        letter.subject, letter.text, sender, letter.to, headers={"Message-ID": name}, connection=server
    )
    mail.attach_alternative(letter.html, "text/html")
    return mail


@transaction.atomic
def again(*, letter: Letter, moment: datetime) -> Letter:
    """Have a letter sent once more that failed, or of which nobody knows whether it arrived; or one that was only kept.

    Raises LetterError for any other, and for one that is being sent at this moment.
    """
    row = Letter.objects.select_for_update(of=("self",)).get(pk=letter.pk)
    stuck = row.state == LetterState.SENDING and row.sent_at is not None and row.sent_at < moment - UNTOLD
    kept = row.state == LetterState.KEPT and settings.CLUSTERTAB_SENDS_MAIL
    if row.state != LetterState.FAILED and not stuck and not kept:
        raise LetterError(f"{row} is {row.get_state_display().lower()}: it is not sent again.")
    row.state, row.not_before, row.tries, row.sent_at = LetterState.WAITING, moment, 0, None
    row.why = ""
    row.save()
    return row
