"""`GET me`: which key this is. `GET status`: how old the data of each cluster is."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from rest_framework import serializers

from clusters.models import Cluster
from portal.api import parameters
from portal.api.answers import as_json
from portal.api.fields import IdField, MomentField
from portal.api.models import ApiKey
from portal.api.views import Endpoint, TenantEndpoint
from portal.core.tenants.ownership import accounts_of


class MeSerializer(serializers.ModelSerializer[ApiKey]):
    id = IdField("key")
    tenant = serializers.CharField(
        source="tenant.slug", default=None, allow_null=True, help_text="Null: an operator's key."
    )
    project = serializers.CharField(
        source="project.name", default=None, allow_null=True, help_text="Null: all projects."
    )
    cluster = serializers.CharField(
        source="cluster.name",
        default=None,
        allow_null=True,
        help_text="Of a key that only asks about its jobs.",
    )
    scopes = serializers.SerializerMethodField(help_text="What it may do now.")
    expires_at = MomentField(allow_null=True)

    class Meta:
        model = ApiKey
        fields = (
            "id",
            "name",
            "prefix",
            "tenant",
            "project",
            "cluster",
            "scopes",
            "is_service",
            "expires_at",
        )

    def get_scopes(self, key: ApiKey) -> list[str]:
        del key
        return sorted(self.context["scopes"])


class Me(Endpoint):
    """The key that the request came with."""

    serializer = MeSerializer

    def get(self, request: Any) -> HttpResponse:
        del request
        return as_json(MeSerializer(self.client.key, context={"scopes": self.client.scopes}).data)


class ClusterStatusSerializer(serializers.ModelSerializer[Cluster]):
    cluster = serializers.CharField(source="name")
    complete_through = MomentField(
        allow_null=True, help_text="All usage up to this instant is there; null: it was never read."
    )

    class Meta:
        model = Cluster
        fields = ("cluster", "complete_through")


class Status(TenantEndpoint):
    """How far each cluster has been read, of those on which the tenant owns an account now."""

    scope = "usage:read"
    serializer = ClusterStatusSerializer
    lists = True
    beyond_tenant = True
    parameters = (parameters.TENANT,)

    def get(self, request: Any) -> HttpResponse:
        del request
        rows = Cluster.objects.order_by("name")
        if (tenant := self.tenant) is not None:
            rows = rows.filter(accounts__in=accounts_of(tenant, at=self.moment)).distinct()
        return as_json({"data": ClusterStatusSerializer(rows, many=True).data, "next": None})
