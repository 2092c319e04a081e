"""Webhooks of a tenant, by its owners; of the operators, by their admins: list, make, deliveries, send again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta, tzinfo
from typing import Any, cast
from urllib.parse import urlencode

from django import forms
from django.contrib import messages
from django.db.models import Count, F, Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from portal.core.pagination import page
from portal.core.tenants.access import Action, Right, rights_of
from portal.core.tenants.models import Tenant, User
from portal.core.tenants.scope import acting_scope
from portal.core.webhooks import addresses, deliveries, delivery_attempt, endpoints
from portal.core.webhooks.addresses import WebhookError
from portal.core.webhooks.messages import ERRORS
from portal.core.webhooks.models import Delivery, DeliveryState, Webhook, WebhookState
from portal.days import check_day
from portal.sentences import NO_CHOICE, sentence
from portal.web import form_input, secret_once
from portal.web.access_decorators import TenantRequest, answer, operator_page, tenant_act, tenant_page
from portal.web.badges import Badge, Tone
from portal.web.page_frame import PageFrame
from portal.web.recent_proof import require_recent_proof

SECRET = "new_webhook_secret"  # noqa: S105 - its name in the session
PROOF = frozenset({"create", "save", "rotate"})  # what shows a secret, or where events go
SIZE = 50  # deliveries on a page
TYPES = forms.CheckboxSelectMultiple(attrs={"class": "form-check-input"})
STATES: Mapping[str, tuple[Promise, Tone]] = {
    WebhookState.ACTIVE: (gettext_lazy("Active"), "ok"),
    WebhookState.OFF: (gettext_lazy("Turned off"), "muted"),
    WebhookState.GONE: (gettext_lazy("Turned off: the endpoint answered 410"), "late"),
    WebhookState.FAILING: (gettext_lazy("Turned off: every attempt of 5 days failed"), "late"),
}
DELIVERY_STATES: Mapping[str, tuple[Promise, Tone]] = {
    DeliveryState.WAITING: (gettext_lazy("Waiting"), "wait"),
    DeliveryState.DELIVERED: (gettext_lazy("Delivered"), "ok"),
    DeliveryState.FAILED: (gettext_lazy("Failed"), "late"),
    DeliveryState.STOPPED: (gettext_lazy("Stopped"), "muted"),
}


class WebhookForm(forms.Form):
    """What a webhook is made of, and changed by."""

    name = forms.CharField(
        label=gettext_lazy("Name"),
        max_length=60,
        help_text=gettext_lazy("Lower-case letters, digits and hyphens, such as: finance-export."),
    )
    url = forms.CharField(
        label=gettext_lazy("Address"),
        max_length=addresses.LONGEST_URL,
        widget=forms.URLInput(attrs={"placeholder": "https://hooks.example.org/clustertab"}),
    )
    event_types = forms.MultipleChoiceField(
        label=gettext_lazy("Events"),
        widget=TYPES,
        required=False,
        help_text=gettext_lazy("Choose none to get all, also types that come later."),
        error_messages=NO_CHOICE,
    )

    def __init__(self, *args: Any, tenant: Tenant | None, **options: Any) -> None:
        super().__init__(*args, **options)
        choices = [(one, one) for one in endpoints.event_types(tenant)]
        cast("forms.MultipleChoiceField", self.fields["event_types"]).choices = choices


@dataclass(frozen=True, kw_only=True)
class WebhookRow:
    """A line of the list. `waiting`: deliveries that are due or come again."""

    name: str
    url: str
    event_types: Sequence[str]
    badge: Badge
    failing_since: datetime | None
    waiting: int


@dataclass(frozen=True, kw_only=True)
class WebhookList:
    rows: Sequence[WebhookRow]
    form: WebhookForm
    tenant: Tenant | None
    can_change: bool
    zone: tzinfo


@dataclass(frozen=True, kw_only=True)
class DeliveryRow:
    key: int
    event: str  # the `webhook-id`
    type: str
    badge: Badge
    attempts: int
    tried_at: datetime | None
    next_at: datetime | None
    status: int | None
    milliseconds: int | None
    answer: str
    error: str  # a sentence; "" for none


@dataclass(frozen=True, kw_only=True)
class WebhookDetail:
    webhook: Webhook
    maker: str
    badge: Badge
    is_active: bool
    secret: str
    overlaps_until: datetime | None  # until when the previous secret signs, too
    deliveries: Sequence[DeliveryRow]
    state: str
    states: Sequence[tuple[str, str]]
    older: str
    form: WebhookForm
    tenant: Tenant | None
    can_change: bool
    since: str  # the day that is proposed for sending again
    zone: tzinfo


@tenant_page(Action.MANAGE, area="webhooks")
def webhooks(request: TenantRequest) -> HttpResponse:
    with acting_scope(request.tenant):  # the pages of a tenant may not read its webhooks
        form = reverse("change_webhooks", args=[request.tenant.slug])
        shown = _list(request, request.tenant, form, can_change=True)
    return answer(request, request.frame, shown, whole="webhooks.html")


@tenant_page(Action.MANAGE, area="webhooks")
def webhook(request: TenantRequest, *, hook: str) -> HttpResponse:
    with acting_scope(request.tenant):
        shown = _detail(request, request.tenant, hook, can_change=True)
    return answer(request, request.frame, shown, whole="webhook.html")


@tenant_act(Action.MANAGE, proof=PROOF)
def change_webhooks(request: HttpRequest, tenant: Tenant) -> HttpResponse:
    name = _change(request, tenant)
    return redirect("webhook", tenant.slug, name) if name else redirect("webhooks", tenant.slug)


@operator_page("webhooks", acts=Right.SETTINGS)
def operator_webhooks(request: HttpRequest, frame: PageFrame) -> HttpResponse:
    if request.method == "POST":
        if request.POST.get("act") in PROOF:
            require_recent_proof(request)
        name = _change(request, None)
        return redirect("operator_webhook", name) if name else redirect("operator_webhooks")
    shown = _list(request, None, request.path, can_change=_changes(request))
    return answer(request, frame, shown, whole="webhooks.html")


@operator_page("webhooks")
def operator_webhook(request: HttpRequest, frame: PageFrame, *, hook: str) -> HttpResponse:
    shown = _detail(request, None, hook, can_change=_changes(request))
    return answer(request, frame, shown, whole="webhook.html")


def _changes(request: HttpRequest) -> bool:
    return Right.SETTINGS in rights_of(cast("User", request.user))


def _list(request: HttpRequest, tenant: Tenant | None, form: str, *, can_change: bool) -> WebhookList:
    """Of a tenant, or of the operators, with what was typed into the form last. One query."""
    typed = form_input.last(request, form)
    types = typed.get("event_types", "").split()
    waiting = Count("deliveries", filter=Q(deliveries__state=DeliveryState.WAITING))
    rows = endpoints.of(tenant).annotate(waiting=waiting).order_by("name")
    return WebhookList(
        rows=[
            WebhookRow(
                name=row.name,
                url=row.url,
                event_types=row.event_types,
                badge=_badge(row),
                failing_since=row.failing_since,
                waiting=row.waiting,
            )
            for row in rows
        ],
        form=WebhookForm(initial={**typed, "event_types": types}, tenant=tenant),
        tenant=tenant,
        can_change=can_change,
        zone=tenant.zone if tenant else UTC,
    )


def _badge(row: Webhook) -> Badge:
    if row.state == WebhookState.ACTIVE and row.failing_since is not None:
        return Badge(label=_("Failing"), tone="late")
    label, tone = STATES[row.state]
    return Badge(label=str(label), tone=tone)


def _detail(request: HttpRequest, tenant: Tenant | None, name: str, *, can_change: bool) -> WebhookDetail:
    """One webhook with a page of its deliveries. Two queries."""
    row = _named(tenant, name)
    moment, zone = datetime.now(UTC), tenant.zone if tenant else UTC
    state = request.GET.get("state", "")
    state = state if state in DeliveryState.values else ""
    rows = Delivery.objects.filter(webhook=row)
    shown = page(
        rows.filter(state=state) if state else rows, "-id", after=request.GET.get("before", ""), size=SIZE
    )
    filters = {"state": state, "before": shown.next}
    overlap = row.previous_until if row.previous_until and moment < row.previous_until else None
    return WebhookDetail(
        webhook=row,
        maker=row.maker_email,  # type: ignore[attr-defined]  # annotated
        badge=_badge(row),
        is_active=row.state == WebhookState.ACTIVE,
        secret=secret_once.take(request, SECRET),
        overlaps_until=overlap,
        deliveries=[_delivery(one) for one in shown.rows],
        state=state,
        states=[(value, str(label)) for value, (label, _tone) in DELIVERY_STATES.items()],
        older="?" + urlencode({k: v for k, v in filters.items() if v}) if shown.next else "",
        form=WebhookForm(
            initial={"name": row.name, "url": row.url, "event_types": row.event_types}, tenant=tenant
        ),
        tenant=tenant,
        can_change=can_change,
        since=f"{(moment - timedelta(days=1)).astimezone(zone):%Y-%m-%d}",
        zone=zone,
    )


def _delivery(row: Delivery) -> DeliveryRow:
    label, tone = DELIVERY_STATES[row.state]
    return DeliveryRow(
        key=row.pk,
        event=delivery_attempt.message_id(row),
        type=row.type,
        badge=Badge(label=str(label), tone=tone),
        attempts=row.attempts,
        tried_at=row.tried_at,
        next_at=row.next_at,
        status=row.status,
        milliseconds=row.milliseconds,
        answer=row.answer,
        error=_(ERRORS[row.error]) if row.error in ERRORS else "",
    )


def _named(tenant: Tenant | None, name: str) -> Webhook:
    row = (
        endpoints.of(tenant)
        .annotate(maker_email=F("maker__email"))
        .filter(name=name.replace("\0", ""))
        .first()
    )
    if row is None:
        raise Http404("no such webhook")
    return row


def _change(request: HttpRequest, tenant: Tenant | None) -> str:
    """What the pressed button says; the name of the webhook to show next. A refusal is told on that page."""
    act, moment = request.POST.get("act", ""), datetime.now(UTC)
    name = "" if act == "create" else _named(tenant, request.POST.get("webhook", "")).name
    try:
        if act in {"create", "save"}:
            name = _save(request, tenant, name, moment)
        elif act == "rotate":
            row = _named(tenant, name)
            rotated = endpoints.rotate_secret(webhook=row, overlap=endpoints.OVERLAP, moment=moment)
            secret_once.keep(request, SECRET, rotated.secret)
        elif act == "delete":
            endpoints.delete_webhook(webhook=_named(tenant, name))
            messages.success(request, _("%(name)s is deleted.") % {"name": name})
            return ""
        else:
            messages.success(request, _act(request, _named(tenant, name), act, moment))
    except WebhookError as refusal:
        messages.error(request, sentence(refusal))
    if act == "create" and not name:
        has_password = "@" in request.POST.get("url", "")
        form_input.keep(
            request, *(one for one in WebhookForm.base_fields if one != "url" or not has_password)
        )
    return name


def _act(request: HttpRequest, row: Webhook, act: str, moment: datetime) -> str:
    """What was done, for the page that follows."""
    names = {"name": row.name}
    if act == "off":
        endpoints.turn_off(webhook=row)
        return _("%(name)s is turned off.") % names
    if act == "on":
        endpoints.turn_on(webhook=row)
        return _("%(name)s is active. Events of the meantime are sent if you choose “Send again”.") % names
    if act == "test":
        deliveries.send_test(webhook=row, moment=moment)
        return _("A test event is on its way: reload this page in a few seconds.")
    if act == "resend":
        key = request.POST.get("delivery", "")
        one = _deliveries(row).filter(pk=int(key) if key.isdecimal() and key.isascii() else 0).first()
        if one is None or len(key) > 18:
            raise Http404("no such delivery")
        deliveries.resend(delivery=one, moment=moment)
        return _("It is sent again now.")
    if act == "resend_since":
        count = deliveries.resend_since(
            webhook=row,
            since=_since(request, row),
            undelivered_only=request.POST.get("which") != "all",
            moment=moment,
        )
        return _("%(count)s events are sent again.") % {"count": count}
    raise Http404("no such act")


def _deliveries(row: Webhook) -> QuerySet[Delivery]:
    return Delivery.objects.filter(webhook=row).select_related("webhook")


def _since(request: HttpRequest, row: Webhook) -> datetime:
    """The beginning of the day, in the tenant's zone. Raises WebhookError for what is no day."""
    field = forms.DateField(validators=[check_day])
    try:
        day = field.clean(request.POST.get("since", ""))
    except forms.ValidationError:
        raise WebhookError("day-invalid") from None
    return datetime.combine(day, time.min, row.tenant.zone if row.tenant else UTC)


def _save(request: HttpRequest, tenant: Tenant | None, name: str, moment: datetime) -> str:
    """Make one, or change the named one; its name. No transaction is open while the address is resolved."""
    values = request.POST.copy()
    if name:
        values["name"] = name
    form = WebhookForm(values, tenant=tenant)
    if not form.is_valid():
        wrong = " ".join(f"{form[field].label}: {errors[0]}" for field, errors in form.errors.items())
        messages.error(request, wrong)
        return name
    fields = form.cleaned_data
    if not name and endpoints.of(tenant).filter(name=fields["name"]).exists():
        raise WebhookError("name-taken", name=fields["name"])
    saved = endpoints.put_webhook(
        tenant=tenant,
        name=fields["name"],
        target=addresses.resolve_in_time(fields["url"], tenant=tenant.pk if tenant else None),
        types=fields["event_types"],
        maker=cast("User", request.user),
        moment=moment,
        is_active=not name or _named(tenant, name).state == WebhookState.ACTIVE,
    )
    if saved.secret:
        secret_once.keep(request, SECRET, saved.secret)
    else:
        messages.success(request, _("%(name)s is saved.") % {"name": saved.webhook.name})
    return saved.webhook.name
