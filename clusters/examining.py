"""From a stored connection to a Slurm that is asked: the client for whoever looks or acts, and "Test connection"."""

from __future__ import annotations

from clusters.connectors.base import ConnectorError
from clusters.connectors.slurm import check
from clusters.connectors.slurm.check import Finding, Level
from clusters.connectors.slurm.login import SlurmLogin
from clusters.connectors.slurm.rest import SlurmRest
from clusters.models import Cluster, ClusterKind, Connection
from clusters.sources import Clock, endpoint, opened


def slurm(*, cluster: Cluster, clock: Clock) -> tuple[Connection, SlurmRest]:
    """The cluster's connection and a client over it, which calls nobody yet and wants to be closed.

    Raises ConnectorError where the cluster has none or a stored secret cannot be read.
    """
    connection = Connection.objects.filter(cluster=cluster).first()
    if connection is None or cluster.kind != ClusterKind.SLURM:
        raise ConnectorError(
            f"{cluster.name} has no connection to a Slurm: give it one, as docs/slurm.md says.", retry=False
        )
    login = SlurmLogin(connection.user, opened(connection.token), opened(connection.jwt_key))
    return connection, SlurmRest(endpoint(connection), login, clock=clock)


def examine(*, cluster: Cluster, clock: Clock) -> list[Finding]:
    """What every check of the cluster's connection found. Never raises a ConnectorError; changes nothing."""
    try:
        connection, rest = slurm(cluster=cluster, clock=clock)
    except ConnectorError as error:
        return [Finding(Level.FAIL, "Connection", str(error))]
    with rest:
        return check.examine(rest, now=clock(), cluster=connection.slurm_cluster)
