"""What a tenant may hold at once, with what is held now: read by tenants, set by operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.http import HttpResponse
from rest_framework import serializers

from billing.catalog.tenant_lock import lock
from billing.limits import limits
from billing.limits.limits import LimitTermsError
from billing.limits.status import load_statuses
from billing.models import ConcurrencyLimit, LimitState
from portal.api.entry_fields import body_of, entry_of
from portal.api.fields import MomentField
from portal.api.problems import not_found
from portal.api.resources.named_rows import NamedEndpoint, NamedList, OneNamed
from portal.config_file.limits import LimitEntry
from portal.core.tenants.models import Tenant
from portal.ops.limits import limit_data

TERMS = ("tenant", "name", "gpus", "jobs", "gpu_model", "project", "account", "cluster")


class LimitAccountSerializer(serializers.Serializer[Any]):
    """One account of the limit, and what it holds, as its cluster was last read."""

    cluster = serializers.CharField()
    account = serializers.CharField()
    gpus = serializers.IntegerField()
    jobs = serializers.IntegerField()
    state = serializers.ChoiceField(
        choices=LimitState.values, help_text="`set`: read back from the scheduler."
    )
    note = serializers.CharField(help_text="What the scheduler does not do, or has otherwise: for operators.")
    error = serializers.CharField(
        help_text="That it could not be set yet, and to operators why; it is tried again."
    )
    checked_at = MomentField(allow_null=True)


class LimitSerializer(serializers.Serializer[Any]):
    """How many GPUs and running jobs each account in scope may hold at once."""

    tenant = serializers.CharField()
    name = serializers.CharField()
    gpus = serializers.IntegerField(allow_null=True, help_text="Null: no limit.")
    jobs = serializers.IntegerField(allow_null=True, help_text="Null: no limit.")
    gpu_model = serializers.CharField(help_text="Empty: any.")
    project = serializers.CharField(allow_null=True, help_text="Null: all.")
    account = serializers.CharField()
    cluster = serializers.CharField()
    accounts = LimitAccountSerializer(many=True)


class LimitFields(body_of(LimitEntry, without=("name",))):  # type: ignore[misc]  # those of the file
    """What PUT says of a limit; the address has its name."""


class LimitEndpoint(NamedEndpoint):
    scope = "quotas:read"
    write_scope = "tenants:write"
    serializer = LimitSerializer
    refusals = (LimitTermsError,)

    def in_force(self, tenant: Tenant | None) -> Any:
        return limits.list_limits(tenant)

    def data(self, rows: Sequence[ConcurrencyLimit]) -> list[dict[str, Any]]:
        inner = self.client.tenant is None
        return [limit_data(one, inner=inner) for one in load_statuses(rows, moment=self.moment)]

    def terms(self, row: ConcurrencyLimit) -> dict[str, Any]:
        (data,) = self.data([row])
        return {name: data[name] for name in TERMS}


class Limits(NamedList, LimitEndpoint):
    """The limits in force, each with what its accounts hold now."""


class OneLimit(OneNamed, LimitEndpoint):
    """One limit, by its name. PUT creates or replaces it, DELETE ends it: by operators."""

    request_serializer = LimitFields

    def put(self, request: Any, name: str) -> HttpResponse:
        del request
        entry = entry_of(LimitEntry, self.body() | {"name": name}, label=f'limit "{name}"')
        tenant = lock(self.needed_tenant())
        self.match_terms(self.row(name))
        row = entry.write(tenant, moment=self.moment.replace(microsecond=0))
        return self.answer(limits.list_limits(tenant).get(pk=row.pk))

    def delete(self, request: Any, name: str) -> HttpResponse:
        del request
        tenant = lock(self.needed_tenant())
        self.match_terms(self.row(name))
        if not limits.end_limit(tenant=tenant, name=name, moment=self.moment.replace(microsecond=0)):
            raise not_found()
        return HttpResponse(status=204)
