"""The pass over failure rules: runs that failed are written down, and credited once they are invoiced."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import structlog
from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet

from billing.invoicing.manual_lines import ManualLineError, add_manual_line
from billing.models import (
    CreditedPart,
    CreditState,
    FailureRule,
    Invoice,
    InvoiceState,
    Payer,
    RatedJob,
    ServiceCredit,
)
from billing.rules.money import Money
from billing.service_credits.amounts import NotInvoicedError, UnclearError, credited_amount
from billing.service_credits.failures import FailedRun, load_failed
from billing.service_credits.rules import list_rules
from clusters import gpu_errors
from portal.core import locks
from portal.core.audit import acting_as
from portal.core.locks import Work
from portal.sentences import sentence

OPEN = (CreditState.WAITING, CreditState.WATCHED)
LATEST = timedelta(days=62)
"""So long after its end a run can become known and still be credited: no pass looks through all that ever ran."""
AT_ONCE = 500
"""Runs whose credit a pass looks up at most."""

log = structlog.get_logger("billing.service_credits")


@dataclass(slots=True)
class FailureTally:
    """What a pass wrote, in numbers of runs."""

    failed: int = 0
    credited: int = 0


def review_failures(*, moment: datetime) -> FailureTally:
    """Look at all rules in force. Again, or by two at once, each run is credited once.

    A query for each rule and one more where nothing has failed.
    """
    done = FailureTally()
    with locks.alone(Work.REVIEWING_FAILURES) as ours, acting_as("review_failures"):
        if ours:
            for rule in sorted(list_rules(), key=_precedence):
                done.failed += _find(rule, moment)
            for credit in _invoiced().order_by("?")[:AT_ONCE]:  # none waits behind those that wait for long
                done.credited += _settle(credit.pk, moment)
    return done


def read_and_review(*, clock: Callable[[], int]) -> None:
    """The errors of GPUs that are due, and then the rules; `clock` gives epoch seconds."""
    errors = gpu_errors.read_due(clock=clock)
    done = review_failures(moment=datetime.fromtimestamp(clock(), UTC))
    if errors or done.failed or done.credited:
        log.info("failures reviewed", errors=errors, failed=done.failed, credited=done.credited)


def _precedence(rule: FailureRule) -> tuple[bool, bool, int, str]:
    """Of several that credit one run the most generous does."""
    return rule.watch, rule.part != CreditedPart.RUN, -rule.percent, rule.name


@transaction.atomic
def _find(rule: FailureRule, moment: datetime) -> int:
    """Where the rule is not what it was any more, its new terms have their turn in the next pass."""
    current = FailureRule.objects.select_for_update().filter(pk=rule.pk, ended_at=None).first()
    if current is None:
        return 0
    state = CreditState.WATCHED if current.watch else CreditState.WAITING
    runs = load_failed(current, since=max(current.applies_from, moment - LATEST), until=moment)
    ServiceCredit.objects.bulk_create([_row(current, run, state, moment) for run in runs])
    return len(runs)


def _row(rule: FailureRule, run: FailedRun, state: CreditState, moment: datetime) -> ServiceCredit:
    return ServiceCredit(
        tenant_id=run.tenant,
        failure_rule=rule,
        record_id=run.record,
        job_id=run.job_id,
        job_name=run.name,
        user=run.user,
        cluster=run.cluster,
        failed_at=run.failed,
        ended_at=run.ended,
        cause=run.cause,
        gpu=run.gpu,
        node=run.node,
        part=rule.part,
        percent=rule.percent,
        state=state,
        began_at=moment,
    )


def _invoiced() -> QuerySet[ServiceCredit]:
    """Those whose amount is not known yet, of tenants with an invoice through their end, or for whom others pay."""
    issued = Invoice.objects.filter(
        tenant=OuterRef("tenant"), state=InvoiceState.ISSUED, period_end__gte=OuterRef("ended_at")
    )
    paid = Payer.objects.filter(tenant=OuterRef("tenant"))
    return ServiceCredit.objects.filter(Exists(issued) | Exists(paid), state__in=OPEN, settled_at=None)


@transaction.atomic
def _settle(pk: int, moment: datetime) -> int:
    """How many were credited: 1, or 0."""
    rows = ServiceCredit.objects.select_for_update(of=("self",)).select_related("tenant", "failure_rule")
    credit = rows.get(pk=pk)
    if credit.settled_at is not None:
        return 0
    try:
        amount = credited_amount(credit)
    except NotInvoicedError:
        return 0
    except (UnclearError, RatedJob.DoesNotExist) as error:
        reason = str(error) if isinstance(error, UnclearError) else "The job is another tenant's now."
        return _decide(credit, CreditState.BY_HAND, moment, error=reason)
    if amount is None or amount.minor <= 0:
        return _decide(credit, CreditState.NOTHING, moment)
    credit.currency, credit.amount = amount.currency, amount.minor
    if credit.state == CreditState.WATCHED:
        return _decide(credit, CreditState.WATCHED, moment)
    return _credit(credit, amount, moment)


def _credit(credit: ServiceCredit, amount: Money, moment: datetime) -> int:
    try:
        credit.line = add_manual_line(
            tenant=credit.tenant,
            description=line_text(credit),
            net=amount * -1,
            reason=f"Failure rule {credit.failure_rule}",
            by="review_failures",
            on=moment.date(),
        )
    except ManualLineError as error:
        return _decide(credit, CreditState.BY_HAND, moment, error=sentence(error))
    return _decide(credit, CreditState.CREDITED, moment)


def line_text(credit: ServiceCredit) -> str:
    """What stands on the invoice: which job, what failed, when, and how much of it is credited."""
    gpu = f" of {credit.gpu}" if credit.gpu else ""
    part = "the whole run" if credit.part == CreditedPart.RUN else "the time from then on"
    return (
        f"Service credit, job {credit.job_id[:150]}: {credit.cause[:60]}{gpu[:90]} at "
        f"{credit.failed_at:%Y-%m-%d %H:%M} UTC, {credit.percent} % of {part}"
    )


def _decide(credit: ServiceCredit, state: CreditState, moment: datetime, *, error: str = "") -> int:
    credit.state, credit.settled_at, credit.error = state, moment, error
    credit.save()
    return int(state == CreditState.CREDITED)
