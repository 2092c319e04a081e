"""The e-mail to operators that a scheduled run has ended: what it issued or would issue, and who waits and why."""

from __future__ import annotations

import smtplib
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import structlog
from django.conf import settings
from django.core.mail import EmailMessage, get_connection
from django.core.mail.backends.base import BaseEmailBackend

from billing.emails.formatting import one_line, page_url
from billing.invoicing.close_results import STUCK, Outcome
from billing.models import CloseKind, CloseReport, CloseRun, ReportState
from billing.rules.formatting import money_text
from billing.rules.money import Money
from billing.rules.period import label, parse_month, period_starting_in
from portal.core.tenants.brand import sender
from portal.core.tenants.models import User

if TYPE_CHECKING:
    from billing.invoicing.close_runs import Tally

LISTED = 50  # tenants that wait; the page has all
TRIES = 12
FIRST, LONGEST = timedelta(minutes=5), timedelta(hours=12)
"""To the next try of what the mail server refused; doubles with each."""
REFUSALS = (smtplib.SMTPResponseException, smtplib.SMTPRecipientsRefused, smtplib.SMTPNotSupportedError)
NOBODY = "No operator has an e-mail address: give one in the administration under Users."
BILLED: Mapping[str, Sequence[Outcome]] = {
    CloseKind.PREVIEW: (Outcome.ISSUED, Outcome.CORRECTED),
    CloseKind.ISSUE: (Outcome.ISSUED, Outcome.CORRECTED, Outcome.ALREADY),
}
"""A run is of periods that were open when it was asked for: what is issued already was so by a worker that died."""
log = structlog.get_logger("billing.invoicing.close_reports")


def write_report(run: CloseRun, tallies: Sequence[Tally]) -> None:
    """For the transaction that ends the run."""
    year, number = parse_month(run.month)
    zone = ZoneInfo("UTC")
    month = label(period_starting_in(year, number, zone=zone, anchor_day=1), zone)
    done = [tally for tally in tallies if tally.outcome in BILLED[run.kind]]
    billed, waits = sum(tally.tenants for tally in done), _count_tenants(tallies, STUCK)
    is_preview = run.kind == CloseKind.PREVIEW
    subject = f"{month} {'previewed' if is_preview else 'issued'}: {_format_tenants(billed)}" + (
        f", {waits} waiting" if waits else ""
    )
    did = "would get invoices" if is_preview else "got their invoices"
    sums = " + ".join(money_text(amount) for amount in _format_sums(done)) or "nothing to pay"
    paragraphs = [
        f"The schedule {'previewed' if is_preview else 'issued'} {month}.",
        *([run.error] if run.error else []),
        f"{_format_tenants(billed)} {did}: {sums}." if billed else f"No tenant {did}.",
        *_list_blocked(run, waits),
        "The preview changed nothing."
        if is_preview
        else "What is blocked or held for approval is not retried automatically: issue it manually.",
    ]
    if checkout := page_url("operator_close"):
        paragraphs.append(f"{checkout}?month={run.month}")
    CloseReport.objects.create(
        run=run,
        subject=f"{month} could not be closed" if run.error else subject,
        text="\n\n".join(paragraphs) + "\n",
        not_before=run.ended_at or run.requested_at,
    )


def send_reports(*, moment: datetime) -> int:
    """Send what waits, and say how many. By two at once, or again after a kill, no report is sent twice.

    Must not be called inside a transaction: each is claimed by a commit before it is sent.
    """
    waiting = CloseReport.objects.filter(state=ReportState.WAITING, not_before__lte=moment)
    if not settings.CLUSTERTAB_SENDS_MAIL:
        waiting.update(state=ReportState.DRAFTED, sent_at=moment)
        return 0
    reports = list(waiting.order_by("pk"))
    if not reports:
        return 0
    people = User.objects.filter(is_active=True).exclude(operator_role="").exclude(email="")
    to = sorted(people.values_list("email", flat=True))
    return sum(_send(report, to, moment) for report in reports)


def _send(report: CloseReport, to: list[str], moment: datetime) -> bool:
    claimed = CloseReport.objects.filter(pk=report.pk, state=ReportState.WAITING)
    server = get_connection()
    try:
        server.open()  # before it is claimed, since what is claimed is never sent again by itself
        if not claimed.update(state=ReportState.SENDING, to=to, sent_at=moment, reason=""):
            return False
        return _hand_over(report, to, server, moment)
    except (OSError, smtplib.SMTPException) as error:
        claimed.update(reason=f"The mail server cannot be reached: {error}")
        return False
    finally:
        server.close()


def _hand_over(report: CloseReport, to: list[str], server: BaseEmailBackend, moment: datetime) -> bool:
    row = CloseReport.objects.filter(pk=report.pk, state=ReportState.SENDING)
    if not to:
        row.update(state=ReportState.FAILED, reason=NOBODY)
        return False
    try:
        EmailMessage(report.subject, report.text, sender(), to, connection=server).send()
    except REFUSALS as error:
        row.update(
            state=ReportState.FAILED if report.tries + 1 >= TRIES else ReportState.WAITING,
            tries=report.tries + 1,
            not_before=moment + min(FIRST * (1 << report.tries), LONGEST),
            reason=f"The mail server refused it: {error}",
        )
    except (OSError, smtplib.SMTPException) as error:
        row.update(reason=f"The mail server did not answer: it may have arrived or not. {error}")
    else:
        row.update(state=ReportState.SENT)
        return True
    log.warning("report not sent", run=report.run_id)
    return False


def _list_blocked(run: CloseRun, count: int) -> list[str]:
    """Who waits and why, one a line."""
    if not count:
        return []
    rows = run.results.filter(outcome__in=STUCK).select_related("tenant").order_by("tenant__slug")[:LISTED]
    lines = [f"{_format_tenants(count)} {'waits' if count == 1 else 'wait'}:"]
    for row in rows:
        why = " ".join(block["sentence"] for block in row.details["blocks"]) or row.details["reason"]
        lines.append(f"- {one_line(row.tenant.name)} ({row.outcome}): {one_line(why)}")
    if count > LISTED:
        lines.append(f"- {count - LISTED} more are on the page.")
    return ["\n".join(lines)]


def _count_tenants(tallies: Sequence[Tally], outcomes: Collection[Outcome]) -> int:
    return sum(tally.tenants for tally in tallies if tally.outcome in outcomes)


def _format_sums(tallies: Sequence[Tally]) -> list[Money]:
    """One amount for each currency, of what is billed."""
    sums: dict[str, int] = {}
    for tally in tallies:
        if tally.currency:
            sums[tally.currency] = sums.get(tally.currency, 0) + tally.total
    return [Money.from_minor(total, currency) for currency, total in sorted(sums.items())]


def _format_tenants(number: int) -> str:
    return f"{number:,} tenant" + ("" if number == 1 else "s")
