"""Clusters with their connections, how they were read, and the usage that could not be read or that nobody owns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.http import HttpResponse
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from billing.proof.sums import seconds_text
from clusters import pull_schedule
from clusters.models import Cluster, ClusterKind, Connection, Pull, Quarantined
from clusters.models.connection import SECRETS
from portal.api import identifiers, parameters
from portal.api.answers import as_json
from portal.api.entry_fields import body_of, entry_of
from portal.api.fields import IdField, MomentField
from portal.api.problems import refused
from portal.api.resources.operators.endpoint import CLUSTER, OperatorEndpoint, WritingEndpoint
from portal.config_file.apply import REFUSALS
from portal.config_file.clusters import ClusterEntry
from portal.core.outbox import outbox
from portal.core.tenants.unassigned import Unassigned, unassigned


class ConnectionSerializer(serializers.ModelSerializer[Connection]):
    """How a live cluster is reached. Secrets are written, never read: there is only which of them there are."""

    url = serializers.CharField(source="base_url")
    secrets = serializers.SerializerMethodField(help_text="Names of the secrets that are stored.")
    first_usage_from = MomentField(allow_null=True)
    credentials_changed_at = MomentField(allow_null=True)
    last_success_at = MomentField(allow_null=True)
    next_pull_at = MomentField(allow_null=True, help_text="Null: due now.")

    class Meta:
        model = Connection
        fields = (
            *("url", "unix_socket", "ca", "client_certificate", "user", "enabled", "options"),
            *("slurm_cluster", "first_usage_from", "every", "look_back", "coverage_needed", "secrets"),
            *("credentials_changed_at", "failures", "last_error", "last_success_at", "next_pull_at"),
        )

    def get_secrets(self, connection: Connection) -> list[str]:
        return [name for name in SECRETS if getattr(connection, name)]


class ClusterSerializer(serializers.ModelSerializer[Cluster]):
    """A cluster. The fields are those of `[[cluster]]` in a file for `apply`."""

    energy_meter = serializers.CharField(
        source="energy_meter_id",
        allow_null=True,
        help_text="The declared meter that counts energy; null: none is.",
    )
    complete_through = MomentField(allow_null=True, help_text="The watermark.")
    connection = ConnectionSerializer(allow_null=True)

    class Meta:
        model = Cluster
        fields = ("name", "kind", "timezone", "shares", "energy_meter", "complete_through", "connection")


class Clusters(OperatorEndpoint):
    """All clusters with their connections, by name."""

    serializer = ClusterSerializer
    lists = True
    parameters = parameters.LISTS

    def get(self, request: Any) -> HttpResponse:
        del request
        return self.page(Cluster.objects.select_related("connection"), order=("name",))


class ClusterFields(body_of(ClusterEntry, without=("name", "connection", "telemetry", "api_server", "node"))):  # type: ignore[misc]
    """What PUT and PATCH say of a cluster; the address has its name."""


DEFAULTS = {
    "kind": ClusterKind.IMPORT.value,
    "timezone": "UTC",
    "shares": {},
    "may_end_jobs": False,
    "job_prices": False,
    "energy_meter": "",
}


class OneCluster(WritingEndpoint):
    """One cluster, by its name. PUT creates or replaces it, PATCH changes what is given; its connection stays."""

    write_scope = "clusters:write"
    serializer = ClusterSerializer
    request_serializer = ClusterFields
    refusals = REFUSALS
    moving = frozenset({"complete_through", "connection"})  # the connection has an address of its own

    def cluster(self, name: str) -> Cluster:
        return Cluster.objects.select_related("connection").get(name=name)

    def get(self, request: Any, name: str) -> HttpResponse:
        del request
        return self.one(self.cluster(name))

    def put(self, request: Any, name: str) -> HttpResponse:
        del request
        if Cluster.objects.select_for_update().filter(name=name).exists():
            self.match(self.cluster(name))
        else:
            self.match_new()
        return self._written(name, DEFAULTS | self.body())

    def patch(self, request: Any, name: str) -> HttpResponse:
        del request
        Cluster.objects.select_for_update().get(name=name)
        self.match(self.cluster(name))
        return self._written(name, self.body(partial=True))

    def _written(self, name: str, values: dict[str, Any]) -> HttpResponse:
        filled = {key: DEFAULTS[key] if value is None else value for key, value in values.items()}
        entry = entry_of(ClusterEntry, filled | {"name": name}, label=f'cluster "{name}"')
        if filled.get("shares") == {}:
            entry = entry.replaced(shares={})
        entry.write()
        return self.one(self.cluster(name))


class ClusterPulls(WritingEndpoint):
    """Have a live cluster pulled now. The pull is listed by `GET /pulls` when it begins."""

    write_scope = "clusters:write"
    serializer = ClusterSerializer
    success = 202

    def post(self, request: Any, name: str) -> HttpResponse:
        del request
        self.body()
        cluster = Cluster.objects.get(name=name)
        if not pull_schedule.ask(cluster):
            raise refused(
                f"{name} has no connection: enter one on its page, or describe one in a file for `apply`."
            )
        outbox.add("billing.tasks.pull_due")
        return self.one(Cluster.objects.select_related("connection").get(pk=cluster.pk), status=202)


class PullSerializer(serializers.ModelSerializer[Pull]):
    """One reading of a source: a pull of a live cluster, or the import of a file."""

    id = IdField("pull")
    cluster = serializers.CharField(source="cluster.name")
    source = serializers.CharField(  # type: ignore[assignment]  # of the row, not of the field
        help_text="The file's name, or the address."
    )
    started_at = MomentField()
    ended_at = MomentField(allow_null=True)
    since = MomentField(allow_null=True, help_text="Of the window that was read; null for a file.")
    until = MomentField(allow_null=True)
    as_of = MomentField(allow_null=True, help_text="Up to which the source had looked.")

    class Meta:
        model = Pull
        fields = (
            *("id", "cluster", "source", "outcome", "error", "started_at", "ended_at", "since", "until"),
            *("as_of", "read", "new", "unchanged", "revised", "quarantined", "steps", "notes"),
        )


class Pulls(OperatorEndpoint):
    """Readings of usage, the newest first: pulls of live clusters and imports of files."""

    serializer = PullSerializer
    lists = True
    parameters = (
        CLUSTER,
        parameters.choice("outcome", [*Pull.Outcome.values], "How it ended."),
        *parameters.LISTS,
    )

    def get(self, request: Any) -> HttpResponse:
        del request
        rows = self.narrowed(
            Pull.objects.select_related("cluster"), cluster="cluster__name", outcome="outcome"
        )
        return self.page(rows, order=("-pk",))


class OnePull(OperatorEndpoint):
    """One reading of usage, by its id."""

    serializer = PullSerializer

    def get(self, request: Any, name: str) -> HttpResponse:
        del request
        return self.one(Pull.objects.select_related("cluster").get(pk=identifiers.read("pull", name)))


class QuarantinedSerializer(serializers.ModelSerializer[Quarantined]):
    """A row that could not be true or read: kept, and not billed."""

    id = IdField("row")
    cluster = serializers.CharField(source="cluster.name")
    reason = serializers.CharField(help_text="What is wrong with it, in a sentence.")
    first_seen = MomentField()
    last_seen = MomentField()
    resolved_at = MomentField(allow_null=True, help_text="Null: it is open.")

    class Meta:
        model = Quarantined
        fields = (
            *("id", "cluster", "code", "reason", "raw", "source", "line", "first_seen", "last_seen"),
            *("resolved_at", "resolution"),
        )


class Quarantine(OperatorEndpoint):
    """Rows in quarantine with their reasons, the newest first."""

    serializer = QuarantinedSerializer
    lists = True
    parameters = (
        CLUSTER,
        parameters.text("code", "Code of the reason.", longest=60),
        parameters.choice("state", ["open", "resolved"], "Whether it still waits.", many=False),
        *parameters.LISTS,
    )

    def get(self, request: Any) -> HttpResponse:
        del request
        rows = self.narrowed(
            Quarantined.objects.select_related("cluster"), cluster="cluster__name", code="code"
        )
        if state := self.query["state"]:
            rows = rows.filter(resolved_at__isnull=state == "open")
        return self.page(rows, order=("-pk",))


class SpanSerializer(serializers.Serializer[Any]):
    """Half-open; null is open."""

    since = MomentField(allow_null=True)
    until = MomentField(allow_null=True)


class UnassignedSerializer(serializers.Serializer[Any]):
    """What an account used while no tenant owned it."""

    cluster = serializers.CharField(source="use.cluster")
    account = serializers.CharField(source="use.account")
    jobs = serializers.IntegerField(source="use.jobs")
    gpu_seconds = serializers.SerializerMethodField(
        help_text="Exact; a fraction such as 50/7 where it is one."
    )
    cpu_seconds = serializers.SerializerMethodField()
    quantities = serializers.SerializerMethodField(help_text="By declared meter, in its unit: exact.")
    first = MomentField(source="use.first", help_text="Start of the first such job or sum.")
    last = MomentField(source="use.last", help_text="End of the last one.")
    gaps = serializers.SerializerMethodField(help_text="Spans without an owner that its jobs touch.")

    def get_gpu_seconds(self, row: Unassigned) -> str:
        return seconds_text(row.use.gpu_seconds)

    def get_cpu_seconds(self, row: Unassigned) -> str:
        return seconds_text(row.use.cpu_seconds)

    @extend_schema_field({"type": "object", "additionalProperties": {"type": "string"}})
    def get_quantities(self, row: Unassigned) -> dict[str, str]:
        return {meter: seconds_text(quantity) for meter, quantity in row.use.quantities.items()}

    @extend_schema_field(SpanSerializer(many=True))
    def get_gaps(self, row: Unassigned) -> list[Mapping[str, Any]]:
        return [SpanSerializer({"since": since, "until": until}).data for since, until in row.gaps]


class UnassignedUsage(OperatorEndpoint):
    """Usage of accounts that no tenant owned: nobody is billed for it. All accounts at once."""

    serializer = UnassignedSerializer
    lists = True

    def get(self, request: Any) -> HttpResponse:
        del request
        return as_json({"data": UnassignedSerializer(unassigned(), many=True).data, "next": None})
