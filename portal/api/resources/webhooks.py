"""Webhooks of a tenant, by a key of one of its owners; of the operators, by one of their admins."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, ClassVar

from django.db.models import F, QuerySet
from django.http import HttpResponse
from rest_framework import serializers
from rest_framework.serializers import BaseSerializer

from portal.api import entity_tags, identifiers, parameters
from portal.api.answers import as_json
from portal.api.bodies import Body
from portal.api.fields import IdField, MomentField
from portal.api.idempotency import ShownOnce
from portal.api.parameters import DRY_RUN, LISTS
from portal.api.problems import bad_request, not_found
from portal.api.views import Endpoint
from portal.core.events.models import EventType
from portal.core.webhooks import addresses, deliveries, delivery_attempt, endpoints
from portal.core.webhooks.addresses import Target, WebhookError
from portal.core.webhooks.messages import ERRORS
from portal.core.webhooks.models import Delivery, DeliveryState, Webhook, WebhookState
from portal.sentences import sentence

HOURS = int(endpoints.LONGEST_OVERLAP / timedelta(hours=1))
INPUT = {
    "address-credentials": "/url",
    "address-fragment": "/url",
    "address-http": "/url",
    "address-invalid": "/url",
    "address-refused": "/url",
    "event-type-unknown": "/event_types",
    "name-invalid": "",
}
"""Refusals of what was sent, each with its place in the body."""


class WebhookSerializer(serializers.ModelSerializer[Webhook]):
    """A webhook, without its secret."""

    id = IdField("whk")
    event_types = serializers.ListField(
        child=serializers.ChoiceField(choices=EventType.choices), help_text="Empty: all, later ones too."
    )
    active = serializers.SerializerMethodField(help_text="Whether events are sent to it.")
    state = serializers.ChoiceField(
        choices=WebhookState.choices, help_text="If it is not active: who turned it off, or why."
    )
    maker = serializers.CharField(source="maker_email")
    created_at = MomentField()
    failing_since = MomentField(allow_null=True, help_text="First failure since the last success.")
    previous_until = MomentField(allow_null=True, help_text="Until then the previous secret signs, too.")

    class Meta:
        model = Webhook
        fields = (
            *("id", "name", "url", "event_types", "active", "state", "maker", "created_at"),
            *("failing_since", "previous_until"),
        )

    def get_active(self, webhook: Webhook) -> bool:
        return webhook.state == WebhookState.ACTIVE


class SecretWebhookSerializer(WebhookSerializer):
    """A webhook with its secret, which is sent this once."""

    secret = serializers.CharField(
        allow_null=True, help_text="Null where the webhook is not new: rotate the secret to get another."
    )

    class Meta(WebhookSerializer.Meta):
        fields = (*WebhookSerializer.Meta.fields, "secret")  # type: ignore[assignment]  # one more


class DeliverySerializer(serializers.ModelSerializer[Delivery]):
    """One event for one webhook, and its last attempt."""

    id = IdField("dlv")
    event = serializers.SerializerMethodField(help_text="Id of the event, which is the `webhook-id`, too.")
    state = serializers.ChoiceField(choices=DeliveryState.choices)
    attempts = serializers.IntegerField(help_text="Since it was sent, or sent again.")
    created_at = MomentField()
    next_at = MomentField(allow_null=True, help_text="Of the next attempt.")
    tried_at = MomentField(allow_null=True, help_text="Of the last attempt.")
    status = serializers.IntegerField(allow_null=True, help_text="Of HTTP; null: there was no answer.")
    answer = serializers.CharField(help_text="The first 1,024 bytes of the last answer.")
    error = serializers.ChoiceField(
        choices=["", *ERRORS], help_text="What kept the last attempt from an answer; empty: nothing."
    )

    class Meta:
        model = Delivery
        fields = (
            *("id", "event", "type", "state", "attempts", "created_at", "next_at", "tried_at", "status"),
            *("milliseconds", "answer", "error"),
        )

    def get_event(self, delivery: Delivery) -> str:
        return delivery_attempt.message_id(delivery)


class ResendSerializer(serializers.Serializer[Any]):
    """How many deliveries are sent again."""

    deliveries = serializers.IntegerField()


class WebhookFields(Body):
    url = serializers.CharField(max_length=addresses.LONGEST_URL, help_text="Begins with https://.")
    event_types = serializers.ListField(
        child=serializers.ChoiceField(choices=EventType.choices),
        max_length=len(EventType),
        default=list,
        help_text="Empty: all, later ones too.",
    )
    active = serializers.BooleanField(default=True, help_text="Whether events are sent to it.")


class WebhookRotationFields(Body):
    overlap_hours = serializers.IntegerField(
        min_value=0,
        max_value=HOURS,
        default=int(endpoints.OVERLAP / timedelta(hours=1)),
        help_text="For so long the present secret signs, too.",
    )


class ResendFields(Body):
    delivery = serializers.RegexField(r"^dlv_[0-9a-z]{13}$", required=False, help_text="One of them.")
    since = MomentField(required=False, help_text="All events since then, 90 days back at most.")
    undelivered_only = serializers.BooleanField(
        default=False, help_text="With `since`: without those that were delivered."
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if ("delivery" in attrs) == ("since" in attrs):
            raise serializers.ValidationError("Name a delivery, or a time since which all are sent again.")
        return attrs


class WebhookEndpoint(Endpoint):
    scope = "webhooks:write"
    whole_tenant = True
    acts = True
    serializer: ClassVar[type[BaseSerializer[Any]]] = WebhookSerializer
    refusals = (WebhookError,)
    moving = frozenset({"failing_since"})

    def webhooks(self) -> QuerySet[Webhook]:
        return endpoints.of(self.client.tenant).annotate(maker_email=F("maker__email"))

    def webhook(self, name: str) -> Webhook:
        row = self.webhooks().filter(name=name).first()
        if row is None:
            raise not_found()
        return row

    def lock(self, name: str) -> Webhook:
        """The webhook, as nobody changes it until the end of the transaction."""
        row = self.webhook(name)
        endpoints.of(self.client.tenant).select_for_update().filter(pk=row.pk).first()
        return self.webhook(name)

    def once(self, saved: endpoints.Saved, status: int) -> HttpResponse:
        """The answer with the secret, and the webhook's ETag; what is stored for a repeated request has none."""
        row = WebhookSerializer(self.webhooks().get(pk=saved.webhook.pk)).data
        answer = ShownOnce(
            as_json({**row, "secret": saved.secret or None}).content,
            status=status,
            content_type="application/json",
        )
        answer.kept = as_json({**row, "secret": None}).content
        answer.headers["ETag"] = entity_tags.tag_of(self.settled(row), as_json(row).content)
        return answer


class Webhooks(WebhookEndpoint):
    """The webhooks of the tenant, or of the operators, the newest first."""

    lists = True
    parameters = LISTS

    def get(self, request: Any) -> HttpResponse:
        del request
        return self.page(self.webhooks(), order=("-pk",))


class OneWebhook(WebhookEndpoint):
    """One webhook. PUT makes it, or has it be so; PATCH changes what is given; DELETE deletes it and its deliveries."""

    request_serializer = WebhookFields
    put_serializer = SecretWebhookSerializer
    write_parameters = (DRY_RUN,)
    target: Target | None = None

    def _handled(self, request: Any, handler: Callable[..., HttpResponse]) -> HttpResponse:
        """The name server is asked before a transaction is open."""
        if request.method in {"PUT", "PATCH"}:
            url = self.body(partial=request.method == "PATCH").get("url")
            try:
                if url is not None:
                    tenant = self.client.tenant
                    self.target = addresses.resolve_in_time(url, tenant=tenant.pk if tenant else None)
            except WebhookError as error:
                raise _of_input(error) from None
        return super()._handled(request, handler)

    def get(self, request: Any, name: str) -> HttpResponse:
        del request
        return self.one(self.webhook(name))

    def put(self, request: Any, name: str) -> HttpResponse:
        del request
        if self.webhooks().filter(name=name).exists():
            self.match(self.lock(name))
        else:
            self.match_new()
        saved = self._put(name, self.body(), self.target)
        return self.once(saved, 200)

    def patch(self, request: Any, name: str) -> HttpResponse:
        del request
        row = self.lock(name)
        self.match(row)
        present = {"event_types": row.event_types, "active": row.state == WebhookState.ACTIVE}
        unchanged = Target(row.url, "", ())  # it was checked when it was given, and is at each attempt
        self._put(name, present | self.body(partial=True), self.target or unchanged)
        return self.one(self.webhook(name))

    def delete(self, request: Any, name: str) -> HttpResponse:
        del request
        row = self.lock(name)
        self.match(row)
        endpoints.delete_webhook(webhook=row)
        return HttpResponse(status=204)

    def _put(self, name: str, values: dict[str, Any], target: Target | None) -> endpoints.Saved:
        if target is None:
            raise AssertionError("the address was resolved before")
        try:
            return endpoints.put_webhook(
                tenant=self.client.key.tenant,
                name=name,
                target=target,
                types=values["event_types"],
                maker=self.client.key.maker,
                moment=self.moment,
                is_active=values["active"],
            )
        except WebhookError as error:
            raise _of_input(error) from None


def _of_input(error: WebhookError) -> Exception:
    """400 where what was sent can never be; else the refusal itself."""
    if error.code not in INPUT:
        return error
    pointer, text = INPUT[error.code], sentence(error)
    return bad_request(text, *([(pointer, text)] if pointer else []))


class WebhookRotation(WebhookEndpoint):
    """A new secret. The present one signs as well for the hours that are given: 24 where none are."""

    serializer = SecretWebhookSerializer
    request_serializer = WebhookRotationFields

    def post(self, request: Any, name: str) -> HttpResponse:
        del request
        row = self.lock(name)
        overlap = timedelta(hours=self.body()["overlap_hours"])
        return self.once(endpoints.rotate_secret(webhook=row, overlap=overlap, moment=self.moment), 201)


class Deliveries(WebhookEndpoint):
    """What was sent to the webhook, or waits to be, of the last 30 days, the newest first."""

    lists = True
    serializer = DeliverySerializer
    parameters = (parameters.choice("state", DeliveryState.values, "In which state."), *LISTS)

    def get(self, request: Any, name: str) -> HttpResponse:
        del request
        rows = self.webhook(name).deliveries.all()
        if self.query["state"]:
            rows = rows.filter(state__in=self.query["state"])
        return self.page(rows, order=("-pk",))


class WebhookTest(WebhookEndpoint):
    """Have an event of the type `webhook.test` sent to it."""

    serializer = DeliverySerializer

    def post(self, request: Any, name: str) -> HttpResponse:
        del request
        self.body()
        delivery = deliveries.send_test(webhook=self.lock(name), moment=self.moment)
        return as_json(self.representation(delivery), status=201)


class WebhookResend(WebhookEndpoint):
    """Send one delivery again, or all events since a time: also those of while the webhook was off."""

    serializer = ResendSerializer
    request_serializer = ResendFields

    def post(self, request: Any, name: str) -> HttpResponse:
        del request
        row, values = self.lock(name), self.body()
        if "since" in values:
            count = deliveries.resend_since(
                webhook=row,
                since=values["since"],
                undelivered_only=values["undelivered_only"],
                moment=self.moment,
            )
            return as_json({"deliveries": count}, status=201)
        key = identifiers.read("dlv", values["delivery"])
        delivery = row.deliveries.select_related("webhook").filter(pk=key).first()
        if delivery is None:
            raise not_found()
        deliveries.resend(delivery=delivery, moment=self.moment)
        return as_json({"deliveries": 1}, status=201)
