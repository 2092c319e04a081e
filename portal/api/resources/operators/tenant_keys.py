"""A first key for somebody in a tenant, made by an operator: it reads, and cannot pay or manage in their name."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from rest_framework import serializers

from portal.api import keys
from portal.api.answers import as_json
from portal.api.bodies import Body
from portal.api.fields import LineField, MomentField
from portal.api.idempotency import ShownOnce
from portal.api.keys import KeyRefusedError
from portal.api.models import ApiKey
from portal.api.problems import bad_request
from portal.api.resources.keys import KeySerializer, NewKeySerializer, refuse_longer
from portal.api.resources.operators.endpoint import WritingEndpoint, tenant_of
from portal.api.scopes import READING


class TenantKeyFields(Body):
    member = serializers.CharField(max_length=254, help_text="E-mail address of whose role limits the key.")
    name = LineField(max_length=100, help_text="What uses the key.")
    scopes = serializers.ListField(
        child=serializers.ChoiceField(choices=sorted(READING)), min_length=1, max_length=len(READING)
    )
    expires_at = MomentField(required=False, allow_null=True, help_text="Null: never.")


class TenantKeys(WritingEndpoint):
    """A key that reads, for a member of the tenant. `secret` is sent once; the owners are mailed."""

    write_scope = "tenants:write"
    serializer = NewKeySerializer
    request_serializer = TenantKeyFields
    refusals = (KeyRefusedError,)

    def post(self, request: Any, name: str) -> HttpResponse:
        del request
        tenant, values = tenant_of(name), self.body()
        membership = (
            tenant.memberships.select_related("user").filter(user__email=values["member"].lower()).first()
        )
        if membership is None:
            sentence = f"{values['member']} is no member of {name}: let them in first."
            raise bad_request(sentence, ("/member", sentence))
        refuse_longer(values.get("expires_at"), self.client.key, "The new key")
        new = keys.make(
            maker=membership.user,
            tenant=tenant,
            name=values["name"],
            scopes={*values["scopes"]},
            moment=self.moment,
            expires_at=values.get("expires_at"),
        )
        row = ApiKey.objects.select_related("project").get(pk=new.key.pk)
        row.maker_email = membership.user.email  # type: ignore[attr-defined]  # as the lists of keys have it
        data = KeySerializer(row).data
        answer = ShownOnce(
            as_json({**data, "secret": new.secret}).content, status=201, content_type="application/json"
        )
        answer.kept = as_json({**data, "secret": None}).content
        return answer
