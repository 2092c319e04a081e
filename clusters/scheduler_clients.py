"""From a stored connection to a client of its scheduler, for code that acts on it."""

from __future__ import annotations

from clusters.connectors.base import ConnectorError
from clusters.connectors.kubernetes.accounts import AccountLookup
from clusters.connectors.slurm.rest import SlurmRest
from clusters.models import ApiServer, Cluster, ClusterKind, Connection
from clusters.sources import Clock, endpoint, kubernetes_api, login, prometheus_options


def slurm(*, cluster: Cluster, clock: Clock) -> tuple[Connection, SlurmRest]:
    """The cluster's connection and a client over it, which calls nobody yet and wants to be closed.

    Raises ConnectorError where the cluster has none or a stored secret cannot be read.
    """
    connection = Connection.objects.filter(cluster=cluster).first()
    if connection is None or cluster.kind != ClusterKind.SLURM:
        raise ConnectorError("no-slurm-connection", retry=False, cluster=cluster.name)
    return connection, SlurmRest(endpoint(connection), login(connection), clock=clock)


def kubernetes(*, cluster: Cluster) -> AccountLookup:
    """What finds an account's objects over the API server, which calls nobody yet; its `api` wants to be closed.

    Raises ConnectorError where the cluster has no connection to one, or a stored secret cannot be read.
    """
    row = ApiServer.objects.filter(cluster=cluster, enabled=True).first()
    connection = Connection.objects.filter(cluster=cluster).first()
    if row is None or connection is None:
        raise ConnectorError("no-kubernetes-api", retry=False, cluster=cluster.name)
    return AccountLookup(
        kubernetes_api(row),
        prometheus_options(connection),
        dedicated=row.dedicated_cluster_queues,
        with_quota=row.always_resource_quota,
    )
