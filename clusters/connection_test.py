"""*Test connection*: what a cluster's scheduler, telemetry and API server answer, in findings for the operator."""

from __future__ import annotations

from datetime import UTC, datetime
from ipaddress import ip_address
from urllib.parse import urlsplit

from clusters import watermark
from clusters.connectors.base import ConnectorError
from clusters.connectors.findings import Finding, Level
from clusters.connectors.gpustack import check as gpustack_check
from clusters.connectors.kubernetes import check as kubernetes_check
from clusters.connectors.mig import own_shares
from clusters.connectors.prometheus import check as prometheus_check
from clusters.connectors.prometheus.client import TIMEOUT, PrometheusClient
from clusters.connectors.slurm import check
from clusters.meters import load_units
from clusters.models import ApiServer, Cluster, ClusterKind, Connection, Telemetry
from clusters.scheduler_clients import kubernetes, slurm
from clusters.sources import (
    Clock,
    endpoint,
    gpustack,
    job_telemetry,
    prometheus_login,
    prometheus_options,
)
from portal.sentences import sentence

LATELY = 3 * 3600  # seconds of what telemetry tells that are looked at


def examine(*, cluster: Cluster, clock: Clock) -> list[Finding]:
    """What every check of the cluster's connection found. Never raises a ConnectorError; changes nothing."""
    connection = Connection.objects.filter(cluster=cluster).first()
    if cluster.kind == ClusterKind.PROMETHEUS:
        findings = [*_prometheus(cluster, clock), *_kubernetes(cluster)]
    elif cluster.kind == ClusterKind.GPUSTACK:
        findings = _gpustack(connection, clock)
    else:
        findings = _slurm(cluster, clock)
    findings = [*_ahead(cluster, clock), *findings]
    return findings if connection is None else [*_in_clear(connection), *findings]


def _ahead(cluster: Cluster, clock: Clock) -> list[Finding]:
    moment = datetime.fromtimestamp(clock(), UTC)
    ahead = watermark.ahead(cluster.name, cluster.complete_through, moment=moment)
    return [] if ahead is None else [Finding(Level.FAIL, "Watermark", ahead.sentence)]


def _in_clear(connection: Connection | ApiServer) -> list[Finding]:
    parts = urlsplit(connection.base_url)
    if connection.unix_socket or parts.scheme != "http" or _is_here(parts.hostname or ""):
        return []
    return [
        Finding(
            Level.WARN,
            "TLS",
            f"What is said with {connection.base_url} travels in clear: whoever listens on the way reads the usage and "
            "any token or password that is sent, and can answer in its place.",
            "an address with https://, of a proxy that ends TLS, or a socket of this host",
        )
    ]


def _is_here(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _slurm(cluster: Cluster, clock: Clock) -> list[Finding]:
    try:
        connection, rest = slurm(cluster=cluster, clock=clock)
    except ConnectorError as error:
        return [Finding(Level.FAIL, "Connection", sentence(error))]
    with rest:
        findings = check.examine(
            rest,
            now=clock(),
            cluster=connection.slurm_cluster,
            shares=own_shares(cluster.shares, "shares"),
        )
    row = Telemetry.objects.filter(cluster=cluster).first()
    return findings if row is None else [*findings, *_telemetry(row, clock)]


def _telemetry(row: Telemetry, clock: Clock) -> list[Finding]:
    """What it tells of the last hours, as a reading would."""
    try:
        with job_telemetry(row, clock=clock) as source:
            now = clock()
            hours = list(source.hours(since=now - LATELY, until=now))
            notes = source.notes
    except ConnectorError as error:
        return [Finding(Level.FAIL, "Telemetry", sentence(error))]
    findings = [Finding(Level.WARN, "Telemetry", note) for note in notes]
    jobs, metrics = {one.job_id for one in hours}, sorted({one.metric for one in hours})
    if jobs:
        count = "1 job" if len(jobs) == 1 else f"{len(jobs)} jobs"
        summary = f"It tells how busy the devices of {count} were in the last hours, by {', '.join(metrics)}."
        findings.insert(0, Finding(Level.OK, "Telemetry", summary))
    return findings or [Finding(Level.WARN, "Telemetry", "It has no whole hour to tell of yet.")]


def _prometheus(cluster: Cluster, clock: Clock) -> list[Finding]:
    connection = Connection.objects.filter(cluster=cluster).first()
    if connection is None:
        return [
            Finding(
                Level.FAIL,
                "Connection",
                f"{cluster.name} has no connection to a Prometheus: docs/how-to/connect-kubernetes.md tells how.",
            )
        ]
    try:
        options = prometheus_options(connection)
        who = prometheus_login(connection)
        end = endpoint(connection, timeout=TIMEOUT)
    except ConnectorError as error:
        return [Finding(Level.FAIL, "Connection", sentence(error))]
    with PrometheusClient(end, who, clock=clock, parameters=options.parameters) as client:
        return prometheus_check.examine(client, options, now=clock(), meters=load_units())


def _gpustack(connection: Connection | None, clock: Clock) -> list[Finding]:
    if connection is None:
        sentence_ = "It has no connection to a GPUStack: docs/how-to/connect-gpustack.md tells how."
        return [Finding(Level.FAIL, "Connection", sentence_)]
    try:
        connector = gpustack(connection, clock)
    except ConnectorError as error:
        return [Finding(Level.FAIL, "Connection", sentence(error))]
    used = {kind: meter for kind, meter in connection.options.items() if meter}
    return gpustack_check.examine(connector, now=clock(), used=used, meters=load_units())


def _kubernetes(cluster: Cluster) -> list[Finding]:
    """Of the API server, where there is one: without, the cluster is read and billed all the same."""
    row = ApiServer.objects.filter(cluster=cluster).first()
    if row is None:
        return []
    try:
        lookup = kubernetes(cluster=cluster)
    except ConnectorError as error:
        return [Finding(Level.FAIL, "API server", sentence(error))]
    with lookup.api:
        return [*_in_clear(row), *kubernetes_check.examine(lookup)]
