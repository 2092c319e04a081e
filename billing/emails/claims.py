"""Taking up what waits to be sent: looked at once more, made one e-mail, and committed as being sent."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction

from billing.dunning import overdue_invoices, reopened_invoices
from billing.emails import composition, daily_digest, ending_text, quota_text, waste_text
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
from billing.notifications import document_notices
from billing.notifications.distribution import list_present_recipients, write_deliveries
from billing.notifications.recipients import QUOTA_KINDS, list_notice_recipients
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
LATER = "Everybody it goes to gets it later, or has turned such e-mails off."
TOMORROW = "Its tenant had its e-mail of today: it waits for tomorrow's."


@dataclass(slots=True)
class SendTally:
    """What was done with notices, in numbers; `troubles` in sentences."""

    sent: int = 0
    drafted: int = 0
    skipped: int = 0
    troubles: list[str] = field(default_factory=list)


@transaction.atomic
def claim_email(pk: int, done: SendTally, moment: datetime) -> list[Notice]:
    """The notices of one e-mail as it is to be sent, committed as such; none where somebody else has them, or nobody
    needs them. The tenant's row is locked, so that no two workers make two e-mails of one."""
    rows = Tenant.objects.select_for_update(no_key=True, of=("self",), skip_locked=True)
    tenant = rows.filter(notices=pk).first()
    first = Notice.objects.filter(pk=pk, state=NoticeState.WAITING).first()
    if tenant is None or first is None:
        return []
    candidates = daily_digest.list_email_notices(first, moment).select_for_update(
        of=("self",), skip_locked=True
    )
    candidates = candidates.select_related(
        "tenant", "invoice__tenant", "attempt__method", "attempt__invoice", "attempt__top_up__wallet"
    )
    sorted_notices = daily_digest.sort_notices(candidates)
    if new := [notice for notice in sorted_notices if not notice.distributed]:  # since the pass began
        write_deliveries(new, moment=moment)
    notices = [notice for notice in sorted_notices if _is_needed(notice, done, moment)]
    for notice in daily_digest.list_superfluous(notices):
        notices.remove(notice)
        _skip(notice, "The same e-mail says more of its invoice.", done)
    if not notices:
        return []
    if (later := daily_digest.next_send_time(notices, tenant, moment)) is not None:
        for notice in notices:
            _put_off(notice, later, TOMORROW)
        return []
    return _write_email(notices, done, moment)


def _write_email(notices: list[Notice], done: SendTally, moment: datetime) -> list[Notice]:
    to = list_present_recipients(notices)
    is_later = not to and bool(list_notice_recipients(notices[0]))
    for notice in notices:
        if notice.kind in overdue_invoices.STEPS and notice.invoice is not None:
            notice.details |= _current_crossing(notice.invoice, moment)
        if notice.kind == NoticeKind.REMINDER:
            notice.details |= {"number": _sent_reminders(notice) + 1}
    written = composition.compose_email(notices, moment=moment) if to else None
    for notice in notices:
        if written is None:  # of a document it is no trouble: its page has it
            has_page = notice.kind in QUOTA_KINDS or notice.kind in document_notices.KINDS
            notice.state = NoticeState.SKIPPED if has_page else NoticeState.FAILED
            notice.reason = LATER if is_later else NOBODY
        else:
            notice.subject, notice.text, notice.html = written.subject, written.text, written.html
            notice.state = NoticeState.SENDING if settings.CLUSTERTAB_SENDS_MAIL else NoticeState.DRAFTED
            notice.to, notice.sent_at, notice.reason = to, moment, ""
            notice.refused = {}
        notice.save()
    if written is None:
        return []
    done.drafted += 0 if settings.CLUSTERTAB_SENDS_MAIL else len(notices)
    return notices


def _is_needed(notice: Notice, done: SendTally, moment: datetime) -> bool:
    if why := pause_reason(notice, moment):
        _put_off(notice, moment + REST, why)
        return False
    if why := skip_reason(notice, moment):
        _skip(notice, why, done)
        return False
    if (later := document_notices.next_look(notice, moment=moment)) is not None:
        _put_off(notice, later, "Its PDF is not made yet.")
        return False
    return True


def _put_off(notice: Notice, until: datetime, reason: str) -> None:
    notice.not_before, notice.reason = until, reason
    notice.save()


def _skip(notice: Notice, reason: str, done: SendTally) -> None:
    notice.state, notice.reason = NoticeState.SKIPPED, reason
    notice.save()
    done.skipped += 1


def _current_crossing(invoice: Invoice, moment: datetime) -> dict[str, int | bool]:
    """Until when it counts: until that is settled. `again`: the first since it is due anew, which has to say so."""
    left = settlement.load_balance(invoice=invoice, on=moment.date()).due.minor
    crossing = reopened_invoices.count_reopenings({invoice.pk: left})[invoice.pk]
    notices = Notice.objects.filter(invoice=invoice, details__crossing=crossing, state__in=daily_digest.OUT)
    return {"crossing": crossing, "again": crossing > 0 and not notices.exists()}


def _sent_reminders(notice: Notice) -> int:
    """Of its invoice, since that was last due: the first that is sent is no third one, whatever was left out."""
    rows = Notice.objects.filter(
        invoice=notice.invoice_id,
        kind=NoticeKind.REMINDER,
        state__in=daily_digest.OUT,
        details__crossing=notice.details["crossing"],
    )
    return rows.exclude(pk=notice.pk).count()


def pause_reason(notice: Notice, moment: datetime) -> str:
    """Why what is owed is not told of for now, in a sentence; "" where nothing rests."""
    if notice.invoice is None or notice.kind not in OF_DEBTS:
        return ""
    return overdue_invoices.pause_reason(invoice=notice.invoice, moment=moment)


def skip_reason(notice: Notice, moment: datetime) -> str:
    """What has happened since that makes it pointless, in a sentence; "" where nothing has."""
    if notice.kind in OF_DEBTS and notice.invoice is not None:
        stand = settlement.load_balance(invoice=notice.invoice, on=moment.date())
        if stand.due.minor <= 0:
            return "Nothing is due any more."
    if notice.kind in QUOTA_KINDS:
        return _skip_reason_of_jobs(notice, moment)
    if notice.kind in document_notices.KINDS:
        day = notice.invoice.due_on if notice.invoice and notice.invoice.due_on else moment.date()
        if not Policies([notice.tenant_id]).of(notice.tenant_id, day).emails:
            return "By the policy nothing is written to this tenant."
        return document_notices.skip_reason(notice, moment=moment)
    if notice.attempt is not None:
        return _skip_reason_of_attempt(notice.attempt)
    if notice.kind in {NoticeKind.CARD_GONE, NoticeKind.CARD_EXPIRED, NoticeKind.CARD_EXPIRES}:
        return _skip_reason_of_card(notice)
    return _skip_reason_of_suspension(notice)


def _skip_reason_of_jobs(notice: Notice, moment: datetime) -> str:
    """Of what budgets and waste rules say, and do to jobs."""
    if notice.kind == NoticeKind.QUOTA_ENDING:
        return ending_text.skip_reason(notice, moment)
    if notice.kind == NoticeKind.WASTE:
        return waste_text.skip_reason(notice)
    return quota_text.skip_reason(notice, moment)


def _skip_reason_of_suspension(notice: Notice) -> str:
    if notice.kind == NoticeKind.ANNOUNCE and _is_suspended(notice):
        return "The tenant is suspended already."
    if notice.kind == NoticeKind.SUSPENDED and not _is_suspended(notice):
        return "The suspension is over."
    if notice.kind == NoticeKind.RESTORED and _is_suspended(notice):
        return "The tenant is suspended again."
    return ""


def _skip_reason_of_attempt(attempt: PaymentAttempt) -> str:
    rows = PaymentAttempt.objects.filter(invoice=attempt.invoice_id)
    if attempt.top_up is not None:
        rows = PaymentAttempt.objects.filter(top_up__wallet=attempt.top_up.wallet_id)
    newest = rows.order_by("-created_at").first()
    return "" if newest == attempt else "The payment has been tried again since."


def _skip_reason_of_card(notice: Notice) -> str:
    usable = SavedMethod.objects.filter(tenant=notice.tenant, state=MethodState.USABLE, preferred=True)
    method = usable.first()
    if method is None:
        return ""
    same = notice.key.split(":")[1] == str(method.pk)
    return "" if same and notice.kind != NoticeKind.CARD_GONE else "Another card is charged by now."


def _is_suspended(notice: Notice) -> bool:
    return Suspension.objects.filter(tenant=notice.tenant, ended_at=None).exists()


def failed_to_write(pk: int, reason: str, moment: datetime) -> None:
    """Put off what could not be written, to be tried alone: it stops no other notice of its tenant."""
    for notice in Notice.objects.filter(pk=pk, state=NoticeState.WAITING):
        notice.details |= {daily_digest.ALONE: True}
        _put_off(notice, moment + REST, reason)
