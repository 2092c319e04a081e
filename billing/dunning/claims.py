"""Taking up what waits to be sent: looked at once more, made one e-mail, and committed as being sent."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction

from billing.dunning import compose, daily_digest, document_notices, overdue_invoices, reopened_invoices
from billing.models import (
    Invoice,
    MethodState,
    Notice,
    NoticeKind,
    NoticeState,
    PaymentAttempt,
    SavedMethod,
    Suspension,
)
from billing.receivables import settlement
from billing.receivables.dunning_policies import Policies
from portal.core.tenants.models import Tenant

REST = timedelta(hours=1)
"""So long a notice waits that is about something that rests."""
OF_DEBTS = (
    NoticeKind.REFUSED,
    NoticeKind.CONFIRM,
    NoticeKind.PAST_DUE,
    NoticeKind.REMINDER,
    NoticeKind.ANNOUNCE,
)
NOBODY = "There is nobody to write to: give the tenant a billing e-mail or an owner."
TOMORROW = "Its tenant had its e-mail of today: it waits for tomorrow's."


@dataclass(slots=True)
class Posted:
    """What was done with notices, in numbers; `troubles` in sentences."""

    sent: int = 0
    kept: int = 0
    skipped: int = 0
    troubles: list[str] = field(default_factory=list)


@transaction.atomic
def claimed(pk: int, done: Posted, moment: datetime) -> list[Notice]:
    """The notices of one e-mail as it is to be sent, committed as such; none where somebody else has them, or nobody
    needs them. The tenant's row is locked, so that no two workers make two e-mails of one."""
    rows = Tenant.objects.select_for_update(no_key=True, of=("self",), skip_locked=True)
    tenant = rows.filter(notices=pk).first()
    first = Notice.objects.filter(pk=pk, state=NoticeState.WAITING).first()
    if tenant is None or first is None:
        return []
    candidates = daily_digest.waiting_with(first, moment).select_for_update(of=("self",), skip_locked=True)
    candidates = candidates.select_related(
        "tenant", "invoice__tenant", "attempt__method", "attempt__invoice", "attempt__top_up__wallet"
    )
    notices = [notice for notice in daily_digest.in_order(candidates) if _is_needed(notice, done, moment)]
    for notice in daily_digest.superfluous(notices):
        notices.remove(notice)
        _skip(notice, "The same e-mail says more of its invoice.", done)
    if not notices:
        return []
    if (later := daily_digest.next_day(notices, tenant, moment)) is not None:
        for notice in notices:
            _put_off(notice, later, TOMORROW)
        return []
    return _written(notices, tenant, done, moment)


def _written(notices: list[Notice], tenant: Tenant, done: Posted, moment: datetime) -> list[Notice]:
    to = compose.recipients(tenant)
    for notice in notices:
        if notice.kind in overdue_invoices.STEPS and notice.invoice is not None:
            notice.told |= _crossing(notice.invoice, moment)
        if notice.kind == NoticeKind.REMINDER:
            notice.told |= {"number": _sent_reminders(notice) + 1}
    written = compose.write(notices, moment=moment) if to else None
    for notice in notices:
        if written is None:  # of a document it is no trouble: its page has it
            is_document = notice.kind in document_notices.KINDS
            notice.state = NoticeState.SKIPPED if is_document else NoticeState.FAILED
            notice.why = NOBODY
        else:
            notice.subject, notice.text, notice.html = written.subject, written.text, written.html
            notice.state = NoticeState.SENDING if settings.CLUSTERTAB_SENDS_MAIL else NoticeState.KEPT
            notice.to, notice.sent_at, notice.why = to, moment, ""
            notice.refused = {}
        notice.save()
    if written is None:
        return []
    done.kept += 0 if settings.CLUSTERTAB_SENDS_MAIL else len(notices)
    return notices


def _is_needed(notice: Notice, done: Posted, moment: datetime) -> bool:
    if why := _rests(notice, moment):
        _put_off(notice, moment + REST, why)
        return False
    if why := _not_needed(notice, moment):
        _skip(notice, why, done)
        return False
    if (later := document_notices.waits_for_document(notice, moment=moment)) is not None:
        _put_off(notice, later, "Its PDF is not made yet.")
        return False
    return True


def _put_off(notice: Notice, until: datetime, why: str) -> None:
    notice.not_before, notice.why = until, why
    notice.save()


def _skip(notice: Notice, why: str, done: Posted) -> None:
    notice.state, notice.why = NoticeState.SKIPPED, why
    notice.save()
    done.skipped += 1


def _crossing(invoice: Invoice, moment: datetime) -> dict[str, int | bool]:
    """Until when it counts: until that is settled. `again`: the first since it is due anew, which has to say so."""
    left = settlement.balance(invoice=invoice, on=moment.date()).due.minor
    crossing = reopened_invoices.counted({invoice.pk: left})[invoice.pk]
    notices = Notice.objects.filter(invoice=invoice, told__crossing=crossing, state__in=daily_digest.OUT)
    return {"crossing": crossing, "again": crossing > 0 and not notices.exists()}


def _sent_reminders(notice: Notice) -> int:
    """Of its invoice, since that was last due: the first that is sent is no third one, whatever was left out."""
    rows = Notice.objects.filter(
        invoice=notice.invoice_id,
        kind=NoticeKind.REMINDER,
        state__in=daily_digest.OUT,
        told__crossing=notice.told["crossing"],
    )
    return rows.exclude(pk=notice.pk).count()


def _rests(notice: Notice, moment: datetime) -> str:
    if notice.invoice is None or notice.kind not in OF_DEBTS:
        return ""
    return overdue_invoices.rests(invoice=notice.invoice, moment=moment)


def _not_needed(notice: Notice, moment: datetime) -> str:
    """What has outcome since that makes it pointless, in a sentence; "" where nothing has."""
    if notice.kind in OF_DEBTS and notice.invoice is not None:
        stand = settlement.balance(invoice=notice.invoice, on=moment.date())
        if stand.due.minor <= 0:
            return "Nothing is due any more."
    if notice.kind in document_notices.KINDS:
        day = notice.invoice.due_on if notice.invoice and notice.invoice.due_on else moment.date()
        if not Policies([notice.tenant_id]).of(notice.tenant_id, day).emails:
            return "By the policy nothing is written to this tenant."
        return document_notices.not_needed(notice, moment=moment)
    if notice.attempt is not None:
        return _not_needed_of_attempt(notice.attempt)
    if notice.kind in {NoticeKind.CARD_GONE, NoticeKind.CARD_EXPIRED, NoticeKind.CARD_EXPIRES}:
        return _not_needed_of_card(notice)
    return _not_needed_of_suspension(notice)


def _not_needed_of_suspension(notice: Notice) -> str:
    if notice.kind == NoticeKind.ANNOUNCE and _suspended(notice):
        return "The tenant is suspended already."
    if notice.kind == NoticeKind.SUSPENDED and not _suspended(notice):
        return "The suspension is over."
    if notice.kind == NoticeKind.RESTORED and _suspended(notice):
        return "The tenant is suspended again."
    return ""


def _not_needed_of_attempt(attempt: PaymentAttempt) -> str:
    rows = PaymentAttempt.objects.filter(invoice=attempt.invoice_id)
    if attempt.top_up is not None:
        rows = PaymentAttempt.objects.filter(top_up__wallet=attempt.top_up.wallet_id)
    newest = rows.order_by("-made_at").first()
    return "" if newest == attempt else "The payment has been tried again since."


def _not_needed_of_card(notice: Notice) -> str:
    usable = SavedMethod.objects.filter(tenant=notice.tenant, state=MethodState.USABLE, preferred=True)
    method = usable.first()
    if method is None:
        return ""
    same = notice.key.split(":")[1] == str(method.pk)
    return "" if same and notice.kind != NoticeKind.CARD_GONE else "Another card is charged by now."


def _suspended(notice: Notice) -> bool:
    return Suspension.objects.filter(tenant=notice.tenant, ended_at=None).exists()


def failed_to_write(pk: int, why: str, moment: datetime) -> None:
    """Put off what could not be written, to be tried alone: it stops no other notice of its tenant."""
    for notice in Notice.objects.filter(pk=pk, state=NoticeState.WAITING):
        notice.told |= {daily_digest.ALONE: True}
        _put_off(notice, moment + REST, why)
