"""Why limits of what is held at once could not be written to a cluster, as far as it is known without asking it."""

from __future__ import annotations

from collections.abc import Iterable

from django.utils.translation import gettext as _

from billing.limits.limits import LimitTerms
from clusters.account_limits import takes_limits
from clusters.models import ApiServer, Cluster, ClusterKind, Connection


def list_obstacles(clusters: Iterable[Cluster], terms: LimitTerms) -> list[str]:
    """A sentence of each cluster that no limit, or not this one, can be written to now. Two queries."""
    listed = sorted(clusters, key=lambda cluster: cluster.name)
    connections = {row.cluster_id: row for row in Connection.objects.filter(cluster__in=listed)}
    servers = ApiServer.objects.filter(cluster__in=listed, enabled=True)
    by_cluster = {row.cluster_id: row for row in servers if row.cluster_id in connections}
    sentences = []
    for cluster in listed:
        connection = connections.get(cluster.pk)
        if cluster.kind == ClusterKind.PROMETHEUS:
            sentences.append(_of_kubernetes(by_cluster.get(cluster.pk), terms))
        elif cluster.kind != ClusterKind.SLURM or connection is None:
            sentences.append(_("{cluster} has no connection that limits can be written over."))
        else:
            sentences.append(_of_slurm(connection))
    names = [cluster.name for cluster in listed]
    return [text.format(cluster=name) for name, text in zip(names, sentences, strict=True) if text]


def _of_slurm(connection: Connection) -> str:
    if takes_limits(connection.api_version):
        return ""
    return _("The Slurm of {cluster} takes no limits over REST: that needs 23.11 or newer.")


def _of_kubernetes(server: ApiServer | None, terms: LimitTerms) -> str:
    """A model is a flavor of a ClusterQueue that is one account's alone: which ones there are, only Kueue knows."""
    if server is None:
        return _("{cluster} has no connection to its API server, over which limits are written.")
    if terms.gpu_model and not server.dedicated_cluster_queues:
        return _("On {cluster} a GPU model alone cannot be limited: limit all GPUs.")
    return ""
