"""Which invoices are late, and what is known of each: read for all of them at once, in a fixed number of queries."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from zoneinfo import ZoneInfo

from django.db.models import CharField, Count, Max, Q, Value

from billing.dunning import reopened_invoices
from billing.models import (
    UNDECIDED,
    UNDER_WAY,
    UNEXPLAINED,
    DisputeState,
    DunningPause,
    EventState,
    GatewayAccount,
    GatewayEvent,
    Invoice,
    Notice,
    NoticeKind,
    NoticeState,
    PaymentAttempt,
    PaymentDispute,
    PaymentRefund,
    Suspension,
)
from billing.models.invoices import InvoiceQuerySet
from billing.payments import gateway_access
from billing.receivables import pauses
from billing.receivables.dunning_policies import Policies
from billing.rules import gateway_amounts
from billing.rules.dunning_defaults import Policy, day_of, still_holds

SLICE = 5_000

STEPS = (NoticeKind.PAST_DUE, NoticeKind.REMINDER, NoticeKind.ANNOUNCE)
"""Notices that the calendar asks for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OverdueInvoice:
    """An invoice that was not paid on the day it was due."""

    pk: int
    tenant: int
    slug: str
    name: str
    number: str
    currency: str
    left: int  # minor units
    due_on: date
    today: date  # where it was issued, from eight in the morning
    crossing: int  # how often it was due again after nothing was left of it
    reminders: int  # the last that was written, or left out, since it was last due
    past_due_notified: bool  # since then
    announced: bool  # since it was last due, and not so long ago that it is forgotten
    announced_on: date | None  # when that was sent, not only kept here
    announcements: int  # that were ever written, needed or not
    suspended: bool
    pause_reason: str  # why nothing is done, a sentence; "" where it is
    paused: bool  # by somebody, this invoice alone
    all_paused: bool  # and so are all of its tenant's
    under_way: bool  # a payment of it
    policy: Policy  # that it goes by

    @property
    def days(self) -> int:
        return (self.today - self.due_on).days


def list_overdue(*, moment: datetime) -> list[OverdueInvoice]:
    """All of them, the longest due first."""
    return _load_details(_list_open(moment), moment)


def list_overdue_page(
    *, moment: datetime, after: tuple[date, int] | None, limit: int
) -> list[OverdueInvoice]:
    """A page of them, behind that due date and id."""
    rows = _list_open(moment)
    if after is not None:
        day, pk = after
        rows = rows.filter(due_on__gte=day).exclude(due_on=day, pk__lte=pk)
    return _load_details(rows[:limit], moment)


def _list_open(moment: datetime) -> InvoiceQuerySet:
    today = day_of(moment, ZoneInfo("Pacific/Kiritimati"))  # nowhere is it later
    return Invoice.objects.filter(due_on__lt=today).unpaid().order_by("due_on", "pk")


def _load_details(rows: InvoiceQuerySet, moment: datetime) -> list[OverdueInvoice]:
    records = list(
        rows.annotate(reopened=reopened_invoices.may_be_reopened()).values_list(*_COLUMNS, named=True)
    )
    notices, pause_reasons = _load_notices([row.pk for row in records]), _PauseReasons(moment)
    suspended, ended = _load_suspensions()
    policies = Policies({row.tenant for row in records})
    crossed = reopened_invoices.count_reopenings(
        {row.pk: row.balance__left for row in records if row.reopened}
    )
    invoices = []
    for row in records:
        zone = ZoneInfo(row.timezone)
        today = day_of(moment, zone)
        if row.due_on >= today:
            continue
        written, crossing = notices.get(row.pk, _WrittenNotices()), crossed[row.pk]
        policy = policies.of(row.tenant, row.due_on)
        holding = None if row.tenant in suspended else policy
        announced = written.announced(crossing, holding, today, ended.get(row.tenant), zone)
        invoices.append(
            OverdueInvoice(
                pk=row.pk,
                tenant=row.tenant,
                slug=row.tenant__slug,
                name=row.tenant__name,
                number=row.number,
                currency=row.currency,
                left=row.balance__left,
                due_on=row.due_on,
                today=today,
                crossing=crossing,
                reminders=written.reminder(crossing),
                past_due_notified=written.past_due(crossing),
                announced=bool(announced),
                announced_on=max((day for day in announced if day), default=None),
                announcements=len(written.announcements),
                suspended=row.tenant in suspended,
                pause_reason=pause_reasons.find_reason(row.pk, row.tenant, row.tenant__slug)
                or too_little_reason(row.balance__left, row.currency),
                paused=(row.tenant, row.pk) in pause_reasons.pauses,
                all_paused=(row.tenant, None) in pause_reasons.pauses,
                under_way=row.pk in pause_reasons.under_way,
                policy=policy,
            )
        )
    return invoices


_COLUMNS = (
    "pk",
    "tenant",
    "tenant__slug",
    "tenant__name",
    "number",
    "currency",
    "balance__left",
    "due_on",
    "timezone",
    "reopened",
)


@dataclass(slots=True)
class _WrittenNotices:
    """What the calendar had written of an invoice."""

    steps: list[tuple[str, int, str, int]] = field(default_factory=list)  # kind, number, state, crossing
    announcements: list[tuple[str, datetime | None, int]] = field(
        default_factory=list
    )  # state, sent, crossing

    def reminder(self, crossing: int) -> int:
        """The last one that counts: who owes again after nothing was left is reminded anew."""
        return max(
            (step for kind, step in self._counting(crossing) if kind == NoticeKind.REMINDER), default=0
        )

    def past_due(self, crossing: int) -> bool:
        return any(kind == NoticeKind.PAST_DUE for kind, _ in self._counting(crossing))

    def _counting(self, crossing: int) -> Iterator[tuple[str, int]]:
        """What still waits counts however often it was due again: it will say how things stand when it is sent."""
        for kind, step, state, of in self.steps:
            if of == crossing or state == NoticeState.WAITING:
                yield kind, step

    def announced(
        self, crossing: int, policy: Policy | None, today: date, ended_at: datetime | None, zone: ZoneInfo
    ) -> list[date | None]:
        """The announcements that count, with the day on which each was sent, None while it was not.

        One that was not needed counts no more, nor one from before the invoice was settled for a time, nor one that
        nothing followed (`policy` is None while the tenant is suspended): the tenant is told anew.
        """
        dates: list[date | None] = []
        ended_on = ended_at.astimezone(zone).date() if ended_at else None
        for state, at, of in self.announcements:
            sent = at.astimezone(zone).date() if at and state == NoticeState.SENT else None
            if state == NoticeState.SKIPPED or (state != NoticeState.WAITING and of != crossing):
                continue
            if sent is not None and policy is not None:
                if still_holds(policy, announced_on=sent, ended_on=ended_on, today=today):
                    dates.append(sent)
            else:
                dates.append(sent)
        return dates


def _load_notices(invoice_ids: list[int]) -> Mapping[int, _WrittenNotices]:
    by_invoice: dict[int, _WrittenNotices] = defaultdict(_WrittenNotices)
    for some_of in _slices(invoice_ids):
        rows = Notice.objects.filter(invoice__in=some_of, kind__in=STEPS)
        records = rows.values_list("invoice", "kind", "step", "state", "sent_at", "details")
        for invoice, kind, step, state, at, more in records:
            written = by_invoice[invoice]
            of = int(more.get("crossing", 0))
            if kind == NoticeKind.ANNOUNCE:
                written.announcements.append((state, at, of))
            else:
                written.steps.append((kind, step, state, of))
    return by_invoice


def _slices(invoice_ids: list[int]) -> Iterator[list[int]]:
    return (invoice_ids[first : first + SLICE] for first in range(0, len(invoice_ids), SLICE))


def _load_suspensions() -> tuple[set[int], dict[int, datetime | None]]:
    """The tenants that are suspended, and by tenant when it was last suspended no more. One query."""
    rows = Suspension.objects.values("tenant").annotate(
        last=Max("ended_at"), current=Count("pk", filter=Q(ended_at=None))
    )
    grouped = list(rows.values_list("tenant", "last", "current"))
    ends = {tenant: last for tenant, last, _ in grouped if last is not None}
    return {tenant for tenant, _, current in grouped if current}, ends


class _PauseReasons:
    """Why nothing is done about an invoice: paused by somebody, or waiting for what only people decide. Two queries."""

    def __init__(self, moment: datetime) -> None:
        self.pauses: dict[tuple[int, int | None], DunningPause] = {
            (row.tenant_id, row.invoice_id): row for row in pauses.filter_active(moment.date())
        }
        text = CharField()
        disputes = PaymentDispute.objects.exclude(state=DisputeState.WON)
        returned = PaymentRefund.objects.filter(UNEXPLAINED)
        under_way = PaymentAttempt.objects.filter(UNDER_WAY)
        events = GatewayEvent.objects.filter(state=EventState.NEEDS_REVIEW).exclude(tenant_slug="")
        rows = disputes.values_list(Value("dispute"), "attempt__invoice", "state").union(
            returned.values_list(Value("given-back"), "attempt__invoice", Value("", text)),
            under_way.values_list(Value("under-way"), "invoice", Value("", text)),
            events.values_list(Value("event"), Value(0), "tenant_slug"),
            all=True,
        )
        grouped: dict[str, list[tuple[int | None, str]]] = defaultdict(list)
        for kind, invoice, state in rows:
            grouped[kind].append((invoice, state))
        self.disputes = _worst_reasons(grouped["dispute"])
        self.refunded = {invoice for invoice, _ in grouped["given-back"]}
        self.under_way = {invoice for invoice, _ in grouped["under-way"]}
        self.tenants_in_review = {slug for _, slug in grouped["event"]}

    def find_reason(self, invoice: int, tenant: int, slug: str) -> str:
        pause = self.pauses.get((tenant, invoice)) or self.pauses.get((tenant, None))
        if pause is not None:
            until = f"until {pause.until}" if pause.until else "indefinitely"
            return f"Paused {until} by {pause.by}: {pause.reason}"
        if invoice in self.disputes:
            if self.disputes[invoice] in UNDECIDED:
                return "The payer disputes a payment at the bank."
            return "A payment was charged back: agree with the tenant, issue a credit note, or write it off."
        if invoice in self.refunded:
            return "A refund at the gateway has no credit note: issue one, or keep the balance open."
        if slug in self.tenants_in_review:
            return "A payment of this tenant matches nothing in ClusterTab: review the gateway's events."
        return ""


def too_little_reason(left: int, currency: str) -> str:
    """Why nobody is written to about so little: it cannot even be charged, and a notice would cost more."""
    if gateway_amounts.to_stripe(left, currency)[0] >= gateway_amounts.least(currency):
        return ""
    return "The amount due is below the smallest amount that can be charged: no e-mails are sent."


def _worst_reasons(rows: Iterable[tuple[int | None, str]]) -> dict[int | None, str]:
    states: dict[int | None, str] = {}
    for invoice, state in rows:
        states[invoice] = max(state, states.get(invoice, ""))  # "open" before "lost" before "inquiry"
    return states


def lockout_reason() -> str:
    """Why the payment service refuses our key, so that nobody knows what is paid; "" where it does not."""
    if not gateway_access.is_configured():
        return ""
    rows = GatewayAccount.objects.exclude(locked_out_at=None).values_list("lockout_reason", flat=True)
    return rows.first() or ""


def pause_reason(*, invoice: Invoice, moment: datetime) -> str:
    """Why nothing is done about this one; "" where it is."""
    return _PauseReasons(moment).find_reason(invoice.pk, invoice.tenant_id, invoice.tenant.slug)
