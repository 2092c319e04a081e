"""Taking up what waits to be sent: looked at once more, made one e-mail, and committed as being sent."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction

from billing.dunning import compose, daily_digest, document_notices, overdue_invoices, reopened_invoices
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
from billing.receivables import settlement
from billing.receivables.dunning_policies import Policies
from portal.core.tenants.models import Tenant

REST = timedelta(hours=1)
"""So long a letter waits that is about something that rests."""
OF_DEBTS = (
    LetterKind.REFUSED,
    LetterKind.CONFIRM,
    LetterKind.PAST_DUE,
    LetterKind.REMINDER,
    LetterKind.ANNOUNCE,
)
NOBODY = "There is nobody to write to: give the tenant a billing e-mail or an owner."
TOMORROW = "Its tenant had its e-mail of today: it waits for tomorrow's."


@dataclass(slots=True)
class Posted:
    """What was done with letters, in numbers; `troubles` in sentences."""

    sent: int = 0
    kept: int = 0
    skipped: int = 0
    troubles: list[str] = field(default_factory=list)


@transaction.atomic
def claimed(pk: int, done: Posted, moment: datetime) -> list[Letter]:
    """The letters of one e-mail as it is to be sent, committed as such; none where somebody else has them, or nobody
    needs them. The tenant's row is locked, so that no two workers make two e-mails of one."""
    rows = Tenant.objects.select_for_update(no_key=True, of=("self",), skip_locked=True)
    tenant = rows.filter(letters=pk).first()
    first = Letter.objects.filter(pk=pk, state=LetterState.WAITING).first()
    if tenant is None or first is None:
        return []
    candidates = daily_digest.waiting_with(first, moment).select_for_update(of=("self",), skip_locked=True)
    candidates = candidates.select_related(
        "tenant", "invoice__tenant", "attempt__method", "attempt__invoice", "attempt__top_up__wallet"
    )
    letters = [letter for letter in daily_digest.in_order(candidates) if _is_needed(letter, done, moment)]
    for letter in daily_digest.superfluous(letters):
        letters.remove(letter)
        _skip(letter, "The same e-mail says more of its invoice.", done)
    if not letters:
        return []
    if (later := daily_digest.next_day(letters, tenant, moment)) is not None:
        for letter in letters:
            _put_off(letter, later, TOMORROW)
        return []
    return _written(letters, tenant, done, moment)


def _written(letters: list[Letter], tenant: Tenant, done: Posted, moment: datetime) -> list[Letter]:
    to = compose.recipients(tenant)
    for letter in letters:
        if letter.kind in overdue_invoices.STEPS and letter.invoice is not None:
            letter.told |= _crossing(letter.invoice, moment)
        if letter.kind == LetterKind.REMINDER:
            letter.told |= {"number": _sent_reminders(letter) + 1}
    written = compose.write(letters, moment=moment) if to else None
    for letter in letters:
        if written is None:  # of a document it is no trouble: its page has it
            is_document = letter.kind in document_notices.KINDS
            letter.state = LetterState.SKIPPED if is_document else LetterState.FAILED
            letter.why = NOBODY
        else:
            letter.subject, letter.text, letter.html = written.subject, written.text, written.html
            letter.state = LetterState.SENDING if settings.CLUSTERTAB_SENDS_MAIL else LetterState.KEPT
            letter.to, letter.sent_at, letter.why = to, moment, ""
            letter.refused = {}
        letter.save()
    if written is None:
        return []
    done.kept += 0 if settings.CLUSTERTAB_SENDS_MAIL else len(letters)
    return letters


def _is_needed(letter: Letter, done: Posted, moment: datetime) -> bool:
    if why := _rests(letter, moment):
        _put_off(letter, moment + REST, why)
        return False
    if why := _not_needed(letter, moment):
        _skip(letter, why, done)
        return False
    if (later := document_notices.waits_for_document(letter, moment=moment)) is not None:
        _put_off(letter, later, "Its PDF is not made yet.")
        return False
    return True


def _put_off(letter: Letter, until: datetime, why: str) -> None:
    letter.not_before, letter.why = until, why
    letter.save()


def _skip(letter: Letter, why: str, done: Posted) -> None:
    letter.state, letter.why = LetterState.SKIPPED, why
    letter.save()
    done.skipped += 1


def _crossing(invoice: Invoice, moment: datetime) -> dict[str, int | bool]:
    """Until when it counts: until that is settled. `again`: the first since it is due anew, which has to say so."""
    left = settlement.balance(invoice=invoice, on=moment.date()).due.minor
    crossing = reopened_invoices.counted({invoice.pk: left})[invoice.pk]
    letters = Letter.objects.filter(invoice=invoice, told__crossing=crossing, state__in=daily_digest.OUT)
    return {"crossing": crossing, "again": crossing > 0 and not letters.exists()}


def _sent_reminders(letter: Letter) -> int:
    """Of its invoice, since that was last due: the first that is sent is no third one, whatever was left out."""
    rows = Letter.objects.filter(
        invoice=letter.invoice_id,
        kind=LetterKind.REMINDER,
        state__in=daily_digest.OUT,
        told__crossing=letter.told["crossing"],
    )
    return rows.exclude(pk=letter.pk).count()


def _rests(letter: Letter, moment: datetime) -> str:
    if letter.invoice is None or letter.kind not in OF_DEBTS:
        return ""
    return overdue_invoices.rests(invoice=letter.invoice, moment=moment)


def _not_needed(letter: Letter, moment: datetime) -> str:
    """What has happened since that makes it pointless, in a sentence; "" where nothing has."""
    if letter.kind in OF_DEBTS and letter.invoice is not None:
        stand = settlement.balance(invoice=letter.invoice, on=moment.date())
        if stand.due.minor <= 0:
            return "Nothing is due any more."
    if letter.kind in document_notices.KINDS:
        day = letter.invoice.due_on if letter.invoice and letter.invoice.due_on else moment.date()
        if not Policies([letter.tenant_id]).of(letter.tenant_id, day).letters:
            return "By the policy nothing is written to this tenant."
        return document_notices.not_needed(letter, moment=moment)
    if letter.attempt is not None:
        return _not_needed_of_attempt(letter.attempt)
    if letter.kind in {LetterKind.CARD_GONE, LetterKind.CARD_EXPIRED, LetterKind.CARD_EXPIRES}:
        return _not_needed_of_card(letter)
    return _not_needed_of_suspension(letter)


def _not_needed_of_suspension(letter: Letter) -> str:
    if letter.kind == LetterKind.ANNOUNCE and _suspended(letter):
        return "The tenant is suspended already."
    if letter.kind == LetterKind.SUSPENDED and not _suspended(letter):
        return "The suspension is over."
    if letter.kind == LetterKind.RESTORED and _suspended(letter):
        return "The tenant is suspended again."
    return ""


def _not_needed_of_attempt(attempt: PaymentAttempt) -> str:
    rows = PaymentAttempt.objects.filter(invoice=attempt.invoice_id)
    if attempt.top_up is not None:
        rows = PaymentAttempt.objects.filter(top_up__wallet=attempt.top_up.wallet_id)
    newest = rows.order_by("-made_at").first()
    return "" if newest == attempt else "The payment has been tried again since."


def _not_needed_of_card(letter: Letter) -> str:
    usable = SavedMethod.objects.filter(tenant=letter.tenant, state=MethodState.USABLE, preferred=True)
    method = usable.first()
    if method is None:
        return ""
    same = letter.key.split(":")[1] == str(method.pk)
    return "" if same and letter.kind != LetterKind.CARD_GONE else "Another card is charged by now."


def _suspended(letter: Letter) -> bool:
    return Suspension.objects.filter(tenant=letter.tenant, ended_at=None).exists()


def failed_to_write(pk: int, why: str, moment: datetime) -> None:
    """Put off what could not be written, to be tried alone: it stops no other letter of its tenant."""
    for letter in Letter.objects.filter(pk=pk, state=LetterState.WAITING):
        letter.told |= {daily_digest.ALONE: True}
        _put_off(letter, moment + REST, why)
