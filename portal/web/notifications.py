"""Which e-mails of a tenant a member gets, and when; the same for what operators subscribe to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import cast
from zoneinfo import ZoneInfo

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from billing.emails.personal_emails import Group
from billing.models import (
    OPERATOR_TOPICS,
    NoticePreference,
    NoticeTiming,
    OperatorSubscription,
)
from billing.notifications.hours import NotificationError
from billing.notifications.preferences import set_preference
from billing.notifications.recipients import list_by_topic
from billing.notifications.subscriptions import set_subscription
from portal.core.tenants.access import Action, Right
from portal.core.tenants.models import Membership, Tenant, User
from portal.core.tenants.scope import acting_scope
from portal.sentences import sentence
from portal.web import form_input
from portal.web.access_decorators import TenantRequest, answer, operator_page, tenant_act, tenant_page
from portal.web.form_input import Option, options
from portal.web.notification_form import HOURS, Waiting, hours_of, read_form, waiting_for
from portal.web.page_frame import PageFrame

TIMINGS: Mapping[str, str] = {
    NoticeTiming.AT_ONCE: gettext_noop("At once"),
    NoticeTiming.DIGEST: gettext_noop("In the daily digest"),
    NoticeTiming.NEVER: gettext_noop("Not at all"),
}
CHOICES: Mapping[str, tuple[str, str]] = {
    "budgets": (
        gettext_noop("Budgets"),
        gettext_noop("A threshold is reached or foreseen, or usage is back under it."),
    ),
    "receipts": (gettext_noop("Receipts and refunds"), gettext_noop("Money came in or was paid back.")),
}
"""What each may choose, by column: name and what it is about."""
FIXED: Sequence[tuple[str, str, str]] = (
    (
        "budgets",
        gettext_noop("Before jobs are ended"),
        gettext_noop("Time runs out: raise the budget, or save your work."),
    ),
    (
        "reminders",
        gettext_noop("Failed payments, reminders, suspensions"),
        gettext_noop("Unanswered, they stop jobs. At most one e-mail a day."),
    ),
    ("invoices", gettext_noop("Invoices and credit notes"), gettext_noop("Documents with a due date.")),
)
"""What never waits: the topic by which it is addressed, its name, and why."""
OPERATOR_CHOICES: Mapping[str, tuple[str, str]] = {
    "endings": (gettext_noop("Before jobs are ended"), gettext_noop("Always sent at once.")),
    "budgets": (gettext_noop("Budgets"), gettext_noop("Thresholds, forecasts, back under.")),
    "payments": (
        gettext_noop("Failed payments and cards"),
        gettext_noop("Refused, to be confirmed, expiring."),
    ),
    "overdue": (gettext_noop("Overdue invoices"), gettext_noop("Reminders and announced suspensions.")),
    "suspensions": (gettext_noop("Suspensions"), gettext_noop("Begun and ended.")),
    "invoices": (gettext_noop("Invoices and credit notes"), gettext_noop("Issued.")),
    "receipts": (gettext_noop("Receipts and refunds"), gettext_noop("Money came in or was paid back.")),
}


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A kind of e-mail with what the person can say of it; `options` is empty where there is nothing to choose."""

    name: str
    label: str
    about: str
    options: Sequence[Option] = ()
    is_recipient: bool


@dataclass(frozen=True, kw_only=True)
class NotificationsPage:
    form: str
    is_member: bool
    email: str
    choices: Sequence[Choice]
    hours: Mapping[str, str]
    tenant_zone: str
    waiting: Waiting | None


@dataclass(frozen=True, kw_only=True)
class OperatorNotificationsPage:
    email: str
    topics: Sequence[tuple[str, str, str, bool]]  # name, label, about, subscribed
    tenants: str
    digest: bool
    is_subscribed: bool
    hours: Mapping[str, str]
    waiting: Waiting


@tenant_page(Action.READ, area="notifications")
def notifications(request: TenantRequest) -> HttpResponse:
    """Of the person's own membership: whoever looks as an operator has none."""
    form = reverse("change_notifications", args=[request.tenant.slug])
    with acting_scope(request.tenant):
        page = _page(request, form, cast("User", request.user))
    return answer(request, request.frame, page, whole="notifications.html")


@tenant_act(Action.READ)
def change_notifications(request: HttpRequest, tenant: Tenant) -> HttpResponse:
    member = _membership(tenant, cast("User", request.user))
    if member is None:
        raise Http404("not a member")
    timings = {column: request.POST[column] for column in CHOICES if column in request.POST}
    try:
        set_preference(membership=member, timings=timings, hours=read_form(request), moment=datetime.now(UTC))
        messages.success(request, _("Saved. It applies to e-mails that are waiting for you, too."))
    except NotificationError as refusal:
        form_input.keep(request, *CHOICES, *HOURS)
        messages.error(request, sentence(refusal))
    return redirect("notifications", tenant.slug)


def _membership(tenant: Tenant, user: User) -> Membership | None:
    row = Membership.objects.filter(tenant=tenant, user=user).defer("user", "tenant").first()
    if row is not None:
        row.tenant, row.user = tenant, user
    return row


def _page(request: TenantRequest, form: str, user: User) -> NotificationsPage:
    tenant, member = request.tenant, _membership(request.tenant, user)
    row = NoticePreference.objects.filter(membership=member).first() if member is not None else None
    typed = form_input.last(request, form) if member is not None else {}
    times = (row or NoticePreference()).times(tenant.zone)
    waiting = None
    if member is not None:
        waiting = waiting_for(
            Group(user.pk, tenant.pk),
            user,
            next_digest=times.next_digest(request.moment),
            zone=times.zone,
            moment=request.moment,
        )
    return NotificationsPage(
        form=form,
        is_member=member is not None,
        email=user.email,
        choices=_choices(tenant, user, row or NoticePreference(), typed),
        hours=hours_of(row, typed),
        tenant_zone=tenant.timezone,
        waiting=waiting,
    )


def _choices(tenant: Tenant, user: User, row: NoticePreference, typed: Mapping[str, str]) -> list[Choice]:
    """What waits if one likes first, then what never does. Two queries."""
    recipients = {
        topic: {email.lower() for email in emails} for topic, emails in list_by_topic(tenant).items()
    }
    address = user.email.lower()
    choices = [
        Choice(
            name=column,
            label=_(label),
            about=_(about),
            options=options(
                [(value, _(text)) for value, text in TIMINGS.items()], typed.get(column, getattr(row, column))
            ),
            is_recipient=address in recipients[column],
        )
        for column, (label, about) in CHOICES.items()
    ]
    return choices + [
        Choice(name=topic, label=_(label), about=_(about), is_recipient=address in recipients[topic])
        for topic, label, about in FIXED
    ]


@operator_page("notifications", acts=Right.READ)
def operator_notifications(request: HttpRequest, frame: PageFrame) -> HttpResponse:
    """Of the operator's own e-mails, which every operator may choose."""
    user, moment = cast("User", request.user), datetime.now(UTC)
    if request.method == "POST":
        _subscribe(request, user, moment)
        return redirect("operator_notifications")
    row = OperatorSubscription.objects.filter(user=user).first()
    typed = form_input.last(request, request.path)
    shown = row or OperatorSubscription()
    times = shown.times(ZoneInfo("UTC"))
    chosen = typed["topic"].split() if typed else shown.topics
    page = OperatorNotificationsPage(
        email=user.email,
        topics=[
            (name, _(OPERATOR_CHOICES[name][0]), _(OPERATOR_CHOICES[name][1]), name in chosen)
            for name in OPERATOR_TOPICS
        ],
        tenants=typed.get("tenants", ", ".join(shown.tenants)),
        digest=typed["when"] != NoticeTiming.AT_ONCE if typed else shown.digest,
        is_subscribed=bool(shown.topics),
        hours=hours_of(row, typed),
        waiting=waiting_for(
            Group(user.pk, None),
            user,
            next_digest=times.next_digest(moment),
            zone=times.zone,
            moment=moment,
        ),
    )
    return answer(request, frame, page, whole="operator/notifications.html")


def _subscribe(request: HttpRequest, user: User, moment: datetime) -> None:
    tenants = request.POST.get("tenants", "").replace("\0", "").replace(",", " ").split()
    try:
        row = set_subscription(
            user=user,
            topics=[topic for topic in OPERATOR_TOPICS if topic in request.POST.getlist("topic")],
            tenants=tenants,
            digest=request.POST.get("when") != NoticeTiming.AT_ONCE,
            hours=read_form(request),
            moment=moment,
        )
    except NotificationError as refusal:
        form_input.keep(request, "topic", "tenants", "when", *HOURS)
        messages.error(request, sentence(refusal))
        return
    if row.topics:
        messages.success(request, _("Saved. It applies to e-mails that are waiting for you, too."))
    else:
        messages.success(request, _("Saved. You are mailed no notices of tenants."))
