"""From a stored connection to the connector that reads it."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from zoneinfo import ZoneInfo

from django.views.decorators.debug import sensitive_variables

from clusters.connectors.base import Connector, ConnectorError, Secret, UsageFact
from clusters.connectors.gpustack.client import TIMEOUT as GPUSTACK_TIMEOUT
from clusters.connectors.gpustack.connector import GpuStackConnector
from clusters.connectors.gpustack.options import options_from as gpustack_options
from clusters.connectors.http import TIMEOUT, Endpoint
from clusters.connectors.kubernetes.api import TIMEOUT as API_TIMEOUT
from clusters.connectors.kubernetes.api import KubernetesApi
from clusters.connectors.mig import by_profile, own_shares
from clusters.connectors.prometheus import AwsIdentity, AwsKeys, PrometheusConnector, PrometheusLogin
from clusters.connectors.prometheus.client import TIMEOUT as QUERY_TIMEOUT
from clusters.connectors.prometheus.connector import JobTelemetry
from clusters.connectors.prometheus.gpu_errors import GpuErrors
from clusters.connectors.prometheus.gpu_errors import connect as connect_gpu_errors
from clusters.connectors.prometheus.option_parsing import options_from
from clusters.connectors.prometheus.options import PrometheusOptions
from clusters.connectors.prometheus.token_options import ServingPlace
from clusters.connectors.slurm.connector import SlurmConnector
from clusters.connectors.slurm.login import SlurmLogin
from clusters.connectors.sums import StoredSums, none_stored
from clusters.credential_files import present, present_certificates, present_key
from clusters.meters import load_units
from clusters.models import ApiServer, Cluster, ClusterKind, Connection, FileFormat, Telemetry
from clusters.models.endpoint import Address, Reach
from clusters.usage import stored_sums
from portal.core.vault import Sealed, VaultError

Clock = Callable[[], int]
"""The present moment in epoch seconds."""


def connect(connection: Connection, *, clock: Clock) -> Connector:
    """The connector of the cluster's kind; it calls nobody yet.

    Raises ConnectorError where a stored secret cannot be read, or the kind has no live source.
    """
    if connection.cluster.kind not in KINDS:
        raise ConnectorError(
            "cluster-not-pulled",
            retry=False,
            cluster=connection.cluster.name,
            source=connection.cluster.get_kind_display().lower(),
        )
    return KINDS[ClusterKind(connection.cluster.kind)](connection, clock)


@sensitive_variables()
def endpoint(connection: Address, *, timeout: int = TIMEOUT) -> Endpoint:
    """Where it listens and what it wants to see; `timeout` in seconds for one answer.

    Raises ConnectorError for secrets that cannot be read.
    """
    return Endpoint(
        base_url=connection.base_url,
        unix_socket=connection.unix_socket,
        ca=present_certificates(connection.ca, what="ca"),
        client_certificate=present_certificates(connection.client_certificate, what="client_certificate"),
        client_key=present(opened(connection.client_key), what="client_key"),
        headers=_headers(opened(connection.headers)),
        timeout=timeout,
    )


def login(connection: Connection) -> SlurmLogin:
    """As whom. Raises ConnectorError for secrets that cannot be read."""
    return SlurmLogin(
        user=connection.user,
        token=present(opened(connection.token), what="token"),
        key=present_key(opened(connection.jwt_key), what="jwt_key"),
    )


@sensitive_variables()
def prometheus_login(connection: Reach) -> PrometheusLogin:
    """As whom to a Prometheus. Raises ConnectorError for secrets that cannot be read."""
    return PrometheusLogin(
        user=connection.user,
        password=present(opened(connection.password), what="password"),
        bearer=present(opened(connection.token), what="token"),
        aws=_aws(opened(connection.aws)),
    )


def kubernetes_api(row: ApiServer) -> KubernetesApi:
    """The API server over which a cluster is acted on; nobody is called yet. Raises ConnectorError."""
    return KubernetesApi(endpoint(row, timeout=API_TIMEOUT), present(opened(row.token), what="token"))


def job_telemetry(row: Telemetry, *, clock: Clock) -> JobTelemetry:
    """What reads how busy a Slurm cluster's jobs were; it calls nobody yet. Raises ConnectorError as `connect` does."""
    return JobTelemetry(
        endpoint(row, timeout=QUERY_TIMEOUT),
        login=prometheus_login(row),
        options=options_from(row.options),
        clock=clock,
    )


def gpu_errors(connection: Connection, *, clock: Clock) -> GpuErrors | None:
    """What reads the errors of a cluster's GPUs; None where no Prometheus watches them. Raises ConnectorError."""
    is_prometheus = connection.cluster.kind == ClusterKind.PROMETHEUS
    reach = (
        connection
        if is_prometheus
        else Telemetry.objects.filter(cluster=connection.cluster, enabled=True).first()
    )
    if reach is None:
        return None
    return connect_gpu_errors(
        endpoint(reach, timeout=QUERY_TIMEOUT),
        login=prometheus_login(reach),
        options=options_from(reach.options),
        clock=clock,
    )


def opened(sealed: Sealed) -> Secret:
    """What is kept: the secret, or the name of its file. Raises ConnectorError with the vault's sentence."""
    try:
        return Secret(sealed.reveal())
    except VaultError as error:
        raise ConnectorError("secret-unreadable", retry=False, reason=str(error)) from None


@sensitive_variables()
def _headers(text: Secret) -> dict[str, Secret]:
    if not text:
        return {}
    try:
        headers = json.loads(text.reveal())
        named = {str(name): Secret(str(value)) for name, value in headers.items()}
    except (ValueError, AttributeError):  # without the cause, which holds the text
        raise ConnectorError("headers-unreadable", retry=False) from None
    values = {name: present(value, what=f"header {name}") for name, value in named.items()}
    for name, value in values.items():
        if not value.reveal().isprintable():
            raise ConnectorError("header-control-characters", retry=True, header=name)
    return values


@sensitive_variables()
def _aws(text: Secret) -> AwsKeys | AwsIdentity | None:
    if not text:
        return None
    try:
        values = json.loads(text.reveal())
        secrets = {
            name: Secret(str(values.get(name, ""))) for name in ("access_key", "secret_key", "session_token")
        }
        region = str(values["region"])
    except (ValueError, KeyError, TypeError, AttributeError):  # without the cause, which holds the text
        raise ConnectorError("aws-keys-unreadable", retry=False) from None
    if not any(secrets.values()):
        return AwsIdentity(region)
    keys = {name: present(secret, what=f"aws, {name}") for name, secret in secrets.items()}
    return AwsKeys(
        region=region,
        access_key=keys["access_key"].reveal(),
        secret_key=keys["secret_key"],
        session_token=keys["session_token"],
    )


def _slurm(connection: Connection, clock: Clock) -> Connector:
    return SlurmConnector(
        endpoint(connection),
        login=login(connection),
        cluster=connection.slurm_cluster,
        clock=clock,
        shares=own_shares(connection.cluster.shares, "shares"),
    )


def _prometheus(connection: Connection, clock: Clock) -> Connector:
    options = prometheus_options(connection)
    return PrometheusConnector(
        endpoint(connection, timeout=QUERY_TIMEOUT),
        login=prometheus_login(connection),
        options=options,
        clock=clock,
        meters=load_units() if options.has_sums else {},
        stored=_stored(connection),
    )


def _stored(connection: Connection) -> StoredSums:
    def stored(prefix: str, begin: int, end: int) -> list[UsageFact]:
        return stored_sums(connection.cluster, prefix=prefix, begin=begin, end=end)

    return stored


def _gpustack(connection: Connection, clock: Clock) -> Connector:
    return gpustack(connection, clock, stored=_stored(connection))


def gpustack(connection: Connection, clock: Clock, *, stored: StoredSums = none_stored) -> GpuStackConnector:
    """What reads a GPUStack; it calls nobody yet. Raises ConnectorError as `connect` does."""
    return GpuStackConnector(
        endpoint(connection, timeout=GPUSTACK_TIMEOUT),
        key=present(opened(connection.token), what="token"),
        options=gpustack_options(connection.options),
        zone=ZoneInfo(connection.cluster.timezone),
        clock=clock,
        meters=load_units(),
        stored=stored,
    )


def prometheus_options(connection: Connection) -> PrometheusOptions:
    """Those of the connection come before those of the cluster."""
    options = options_from(connection.options)
    rows = by_profile(own_shares(connection.cluster.shares, "shares"))
    energy = connection.cluster.energy_meter_id is not None
    return replace(options, shares={**rows, **options.shares}, energy=energy)


def serving_places() -> list[ServingPlace]:
    """Where models are served whose tokens are read, as the connections say it. One query."""
    places: list[ServingPlace] = []
    for connection in Connection.objects.filter(cluster__kind=ClusterKind.PROMETHEUS).select_related(
        "cluster"
    ):
        with suppress(ConnectorError):  # options that cannot be read are told of where the cluster is
            tokens = options_from(connection.options).tokens
            places += [
                place for of_model in (tokens.served_by if tokens else {}).values() for place in of_model
            ]
    return list(dict.fromkeys(places))


def refuse_twice(cluster: Cluster, form: FileFormat) -> None:
    """Raise ConnectorError for a file whose usage the cluster has otherwise, so that it would be billed twice."""
    if form == FileFormat.OPENCOST and cluster.kind != ClusterKind.IMPORT:
        raise ConnectorError("pods-twice", retry=False, cluster=cluster.name)
    if form != FileFormat.LITELLM:
        return
    connection = Connection.objects.filter(cluster=cluster, cluster__kind=ClusterKind.PROMETHEUS).first()
    if connection is not None and prometheus_options(connection).tokens is not None:
        raise ConnectorError("tokens-twice", retry=False, cluster=cluster.name)


KINDS: dict[ClusterKind, Callable[[Connection, Clock], Connector]] = {
    ClusterKind.SLURM: _slurm,
    ClusterKind.PROMETHEUS: _prometheus,
    ClusterKind.GPUSTACK: _gpustack,
}
"""Kinds that are pulled, and what makes the connector of each."""
