"""Clusters in a configuration file, with their connections and declared nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Annotated, Any, ClassVar
from zoneinfo import ZoneInfo

from clusters.connectors.base import Secret
from clusters.declared_nodes import MOST_GPUS, Node, declare_nodes
from clusters.energy import energy_meter
from clusters.models import (
    ApiServer,
    CapacityState,
    Cluster,
    ClusterError,
    ClusterKind,
    Connection,
    Telemetry,
)
from clusters.models.api_server import API_SECRETS
from clusters.models.connection import FITTING, SECRETS, WHERE
from clusters.models.endpoint import validate_address
from clusters.models.secrets_guard import entered_for_elsewhere
from clusters.models.telemetry import TELEMETRY_SECRETS
from portal.config_file import credential_input
from portal.config_file.credential_input import SecretText
from portal.config_file.entries import Entry, Rule, key, save
from portal.config_file.toml_values import Moment, instant
from portal.core.tenants.models import validate_zone
from portal.core.vault import VaultError, seal
from portal.excerpt import quoted
from portal.sentences import sentence

Certificates = Annotated[str, Rule(value=credential_input.certificates)]


class AddressEntry(Entry, frozen=True, kw_only=True):
    """An address and how we show who we are there."""

    base_url: Annotated[str, Rule(longest=500, check=validate_address)] | None = key(name="url", default=None)
    unix_socket: str | None = None
    ca: Certificates | None = None
    client_certificate: Certificates | None = None
    enabled: bool | None = None
    client_key: SecretText | None = None
    token: SecretText | None = None
    headers: Annotated[Secret, Rule(read=credential_input.headers)] | None = None

    @property
    def secrets(self) -> dict[str, Secret]:
        """By column, encrypted once they are stored."""
        return {name: value for name, value in self.columns().items() if isinstance(value, Secret)}

    @property
    def settings(self) -> dict[str, Any]:
        """The other columns."""
        return {name: value for name, value in self.columns().items() if not isinstance(value, Secret)}

    def change(
        self,
        row: Connection | Telemetry | ApiServer,
        settings: Mapping[str, Any],
        *,
        secrets: Sequence[str],
        what: str,
        listener: str,
    ) -> bool:
        """Set what differs; whether anything does. Raises ClusterError."""
        if not any(settings.get(name, getattr(row, name)) for name in ("base_url", "unix_socket")):
            raise ClusterError(f"its {what} has neither url nor unix_socket; write where {listener} listens.")
        if again := entered_for_elsewhere(row, settings, entered=self.secrets, secrets=secrets):
            raise ClusterError(
                f"its {what} leads to another address, and what is kept secret was given for {row.address}: "
                f'give {", ".join(again)} again with it, or take it away with "".'
            )
        differing = {name: value for name, value in settings.items() if getattr(row, name) != value}
        try:
            changed = {
                name: seal(secret.reveal())
                for name, secret in self.secrets.items()
                if not credential_input.same(getattr(row, name), secret)
            }
        except VaultError as error:
            raise ClusterError(sentence(error)) from None
        for name, value in (differing | changed).items():
            setattr(row, name, value)
        return bool(differing or changed)


class TelemetryEntry(AddressEntry, frozen=True, kw_only=True):
    """The Prometheus that measures the devices of a Slurm cluster."""

    user: Annotated[str, Rule(longest=100)] | None = None
    options: Annotated[dict[str, Any], Rule(read=credential_input.options)] | None = None
    password: SecretText | None = None
    aws: Annotated[Secret, Rule(read=credential_input.aws)] | None = None

    def write_telemetry(self, cluster: Cluster) -> None:
        """Have the telemetry be so; applied again, nothing changes. Raises ClusterError."""
        if cluster.kind != ClusterKind.SLURM:
            raise ClusterError(
                "it has telemetry, which is for clusters of the kind 'slurm'; this one is "
                f"{quoted(cluster.kind)}."
            )
        row = Telemetry.objects.filter(cluster=cluster).first() or Telemetry(cluster=cluster)
        what, listener = "telemetry", "the Prometheus"
        if self.change(row, self.settings, secrets=TELEMETRY_SECRETS, what=what, listener=listener):
            if misfit := row.prometheus_misfit():
                raise ClusterError(f"its telemetry cannot be meant so. {misfit}")
            row.next_at = None
            row.save()


class ApiServerEntry(AddressEntry, frozen=True, kw_only=True):
    """The API server of a Kubernetes cluster, over which its accounts are blocked."""

    dedicated_cluster_queues: list[str] | None = None
    always_resource_quota: bool | None = None

    def write_api_server(self, cluster: Cluster) -> None:
        """Have the connection be so; applied again, nothing changes. Raises ClusterError."""
        if cluster.kind != ClusterKind.PROMETHEUS:
            raise ClusterError(
                "it has an api_server, which is for clusters of the kind 'prometheus'; this one is "
                f"{quoted(cluster.kind)}."
            )
        row = ApiServer.objects.filter(cluster=cluster).first() or ApiServer(cluster=cluster)
        what, listener = "api_server", "the API server"
        if self.change(row, self.settings, secrets=API_SECRETS, what=what, listener=listener):
            row.save()


class ConnectionEntry(TelemetryEntry, frozen=True, kw_only=True):
    slurm_cluster: Annotated[str, Rule(longest=100)] | None = None
    first_usage_from: Moment | None = None
    every: Annotated[int, Rule(lowest=30, highest=86_400)] | None = None
    look_back: Annotated[int, Rule(lowest=1, highest=24 * 62)] | None = None
    coverage_needed: Annotated[int, Rule(lowest=0, highest=100)] | None = None
    jwt_key: Annotated[Secret, Rule(value=credential_input.signing_key)] | None = None

    def write_connection(self, cluster: Cluster) -> None:
        """Have the connection be so; applied again, nothing changes. Raises ClusterError."""
        if cluster.kind not in WHERE:
            kinds = " or ".join(repr(kind.value) for kind in WHERE)
            raise ClusterError(f"it has a connection, so its kind has to be {kinds}.")
        self._refuse_columns_of_other_kinds(cluster)
        row = Connection.objects.filter(cluster=cluster).first() or Connection(cluster=cluster)
        settings = self.settings
        if self.first_usage_from is not None:
            settings["first_usage_from"] = instant(self.first_usage_from, ZoneInfo(cluster.timezone))
        what, listener = "connection", WHERE[ClusterKind(cluster.kind)]
        if self.change(row, settings, secrets=SECRETS, what=what, listener=listener):
            if misfit := row.misfit(cluster.kind):
                raise ClusterError(f"its connection cannot be meant so. {misfit}")
            row.next_pull_at = None  # what was wrong with it may be right now
            row.save()

    def _refuse_columns_of_other_kinds(self, cluster: Cluster) -> None:
        filled = {name for name, value in self.columns().items() if value}
        for name in filled.difference(FITTING.get(ClusterKind(cluster.kind), ())):
            kinds = " or ".join(quoted(kind.value) for kind, columns in FITTING.items() if name in columns)
            if kinds:
                raise ClusterError(
                    f"its connection has {name}, which is for clusters of the kind {kinds}; "
                    f"this one is {quoted(cluster.kind)}."
                )


class NodeEntry(Entry, frozen=True, kw_only=True):
    noun: ClassVar[str] = "node"
    name: str
    gpu_model: str
    gpus: Annotated[int, Rule(lowest=1, highest=MOST_GPUS, missing="; write how many GPUs the node has.")]
    state: CapacityState = CapacityState.UP
    since: date | None = key(name="from", default=None)
    until: date | None = None


class ClusterEntry(Entry, frozen=True, kw_only=True):
    noun: ClassVar[str] = "cluster"
    named_by: ClassVar[str] = "name"
    name: Annotated[str, Rule(longest=100)]
    kind: ClusterKind | None = None
    timezone: Annotated[str, Rule(filled=True, longest=64, check=validate_zone)] | None = None
    shares: Annotated[dict[str, Any], Rule(read=credential_input.shares)] | None = None
    may_end_jobs: bool | None = None
    job_prices: bool | None = None
    energy_meter: str | None = None  # "" takes it away
    connection: ConnectionEntry | None = None
    telemetry: TelemetryEntry | None = None
    api_server: ApiServerEntry | None = None
    nodes: list[NodeEntry] | None = key(name="node", default=None)  # [] takes them away

    @property
    def identity(self) -> str:
        return self.name

    def write(self) -> None:
        """Raises ClusterError and CapacityError."""
        cluster = Cluster.objects.filter(name=self.name).first()
        if cluster is not None and self.timezone not in {None, cluster.timezone}:
            cluster.refuse_new_zone()
        columns = self.columns("energy_meter")
        if self.energy_meter is not None:
            columns["energy_meter"] = energy_meter(self.energy_meter)
        cluster = save(cluster or Cluster(name=self.name), columns)
        if self.connection is not None:
            self.connection.write_connection(cluster)
        if self.telemetry is not None:
            self.telemetry.write_telemetry(cluster)
        if self.api_server is not None:
            self.api_server.write_api_server(cluster)
        if self.nodes is not None:
            declare_nodes(cluster=cluster, nodes=[Node(**entry.columns()) for entry in self.nodes])
