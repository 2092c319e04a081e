"""Keys of a tenant: made, changed, rotated and revoked by a key of one of its owners."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, ClassVar

from django.db.models import F
from django.http import HttpResponse
from rest_framework import serializers
from rest_framework.serializers import BaseSerializer

from portal.api import identifiers, keys
from portal.api.answers import as_json
from portal.api.bodies import Body
from portal.api.fields import IdField, LineField, MomentField
from portal.api.idempotency import ShownOnce
from portal.api.keys import LONGEST_OVERLAP, KeyRefusedError, NewKey
from portal.api.models import ApiKey
from portal.api.parameters import DRY_RUN, LISTS
from portal.api.problems import not_found, refused
from portal.api.scopes import TENANT_SCOPES
from portal.api.views import TenantEndpoint

HOURS = int(LONGEST_OVERLAP / timedelta(hours=1))


class KeySerializer(serializers.ModelSerializer[ApiKey]):
    """A key, without its secret."""

    id = IdField("key")
    project = serializers.CharField(
        source="project.name", default=None, allow_null=True, help_text="Null: all projects."
    )
    maker = serializers.CharField(source="maker_email", help_text="Whose role limits what it may do.")
    created_at = MomentField()
    expires_at = MomentField(allow_null=True)
    revoked_at = MomentField(allow_null=True)
    used_at = MomentField(allow_null=True, help_text="To the hour.")
    previous_until = MomentField(allow_null=True, help_text="Until then the previous secret is valid.")
    previous_used_at = MomentField(allow_null=True, help_text="To the hour.")

    class Meta:
        model = ApiKey
        fields = (
            *("id", "name", "prefix", "project", "maker", "is_service", "scopes", "created_at"),
            *("expires_at", "revoked_at", "used_at", "previous_until", "previous_used_at"),
        )


class NewKeySerializer(KeySerializer):
    """A key with its secret, which is sent this once."""

    secret = serializers.CharField(
        allow_null=True, help_text="Null where the request is repeated: then rotate the key."
    )

    class Meta(KeySerializer.Meta):
        fields = (*KeySerializer.Meta.fields, "secret")  # type: ignore[assignment]  # one more


class KeyFields(Body):
    name = LineField(max_length=100, help_text="What uses the key.")
    scopes = serializers.ListField(
        child=serializers.ChoiceField(choices=[*TENANT_SCOPES]),
        min_length=1,
        max_length=len(TENANT_SCOPES),
        help_text="Of those that the key of this request has.",
    )
    project = serializers.CharField(required=False, allow_null=True, help_text="Name; null: all projects.")
    expires_at = MomentField(required=False, allow_null=True, help_text="Null: never.")
    is_service = serializers.BooleanField(required=False, default=False)


class KeyChanges(Body):
    name = LineField(max_length=100, required=False)
    expires_at = MomentField(required=False, allow_null=True, help_text="Null: never.")


class Rotation(Body):
    overlap_hours = serializers.IntegerField(
        min_value=0, max_value=HOURS, help_text="For so long the present secret stays valid."
    )


def is_later(end: datetime | None, than: datetime | None) -> bool:
    """Of two ends of keys; None is never."""
    return than is not None and (end is None or end > than)


def refuse_longer(end: datetime | None, own: ApiKey, what: str) -> None:
    """Whoever holds a key that ends gets no secret by it that lasts longer."""
    if is_later(end, own.expires_at):
        raise refused(f"{what} would be valid for longer than the key of this request.")


class KeyEndpoint(TenantEndpoint):
    scope = "keys:write"
    whole_tenant = True
    acts = True
    serializer: ClassVar[type[BaseSerializer[Any]]] = KeySerializer
    refusals = (KeyRefusedError,)
    moving = frozenset({"used_at", "previous_used_at"})

    def keys(self) -> Any:
        rows = ApiKey.objects.filter(tenant=self.client.tenant)
        return rows.select_related("project").annotate(maker_email=F("maker__email"))

    def found(self, name: str) -> ApiKey:
        row: ApiKey | None = self.keys().filter(pk=identifiers.read("key", name)).first()
        if row is None:
            raise not_found()
        return row

    def lock(self, name: str) -> ApiKey:
        """The key, as nobody changes it until the end of the transaction."""
        ApiKey.objects.select_for_update().get(pk=self.found(name).pk)
        return self.found(name)

    def refuse_more(self, scopes: Any, what: str) -> None:
        """Whoever holds a key gets nothing by it that the key itself may not do."""
        if more := sorted({*scopes} - self.client.scopes):
            raise refused(f"{what} has {more[0]}, which the key of this request does not have.")

    def shown_once(self, new: NewKey, status: int) -> HttpResponse:
        row = KeySerializer(self.keys().get(pk=new.key.pk)).data
        answer = ShownOnce(
            as_json({**row, "secret": new.secret}).content, status=status, content_type="application/json"
        )
        answer.kept = as_json({**row, "secret": None}).content
        return answer


class Keys(KeyEndpoint):
    """The keys of the tenant, the newest first; POST makes one."""

    lists = True
    parameters = LISTS
    write_parameters = (DRY_RUN,)
    request_serializer = KeyFields
    created_serializer = NewKeySerializer

    def get(self, request: Any) -> HttpResponse:
        del request
        return self.page(self.keys(), order=("-pk",))

    def post(self, request: Any) -> HttpResponse:
        del request
        values, own = self.body(), self.client.key
        if own.tenant is None:
            raise not_found()
        self.refuse_more(values["scopes"], "The new key")
        ends = values.get("expires_at")
        refuse_longer(ends, own, "The new key")
        project = None
        if name := values.get("project"):
            project = own.tenant.projects.filter(name=name).first()
            if project is None:
                raise refused("There is no project of this name.")
        new = keys.make(
            maker=own.maker,
            tenant=own.tenant,
            name=values["name"],
            scopes={*values["scopes"]},
            moment=self.moment,
            expires_at=ends,
            project=project,
            is_service=values["is_service"],
        )
        return self.shown_once(new, 201)


class OneKey(KeyEndpoint):
    """One key. PATCH changes its name or its end, DELETE revokes it."""

    request_serializer = KeyChanges

    def get(self, request: Any, name: str) -> HttpResponse:
        del request
        return self.one(self.found(name))

    def patch(self, request: Any, name: str) -> HttpResponse:
        del request
        row = self.lock(name)
        self.match(row)
        values = {"name": row.name, "expires_at": row.expires_at} | self.body(partial=True)
        if is_later(values["expires_at"], row.expires_at):
            self.refuse_more(row.scopes, "That key")
            refuse_longer(values["expires_at"], self.client.key, "That key")
        keys.change(key=row, **values, moment=self.moment)
        return self.one(self.found(name))

    def delete(self, request: Any, name: str) -> HttpResponse:
        del request
        row = self.lock(name)
        self.match(row)
        if row.revoked_at is not None:
            raise not_found()
        keys.revoke(key=row, moment=self.moment)
        return HttpResponse(status=204)


class KeyRotation(KeyEndpoint):
    """A new secret; the present one stays valid for the hours that are given."""

    serializer = NewKeySerializer
    request_serializer = Rotation

    def post(self, request: Any, name: str) -> HttpResponse:
        del request
        row, hours = self.lock(name), self.body()["overlap_hours"]
        self.refuse_more(row.scopes, "That key")
        refuse_longer(row.expires_at, self.client.key, "The new secret")
        overlap = timedelta(hours=hours)
        new = keys.rotate(key=row, by=self.client.key.maker, overlap=overlap, moment=self.moment)
        return self.shown_once(new, 201)
