"""The API server of a Kubernetes cluster, over which its accounts are blocked; usage comes from its Prometheus."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import Q

from clusters.models.cluster import Cluster
from clusters.models.endpoint import Address, stamps
from portal.core.audit import track

API_SECRETS = ("client_key", "headers", "token")
"""Columns that rest encrypted."""


@track(exclude=[*API_SECRETS])
class ApiServer(Address):
    """Where it listens, as whom we come, and which objects may be written for a block.

    The history has every change of it but no secret: of those it has who changed one, and when.
    """

    OWN_COLUMNS: ClassVar = ("dedicated_cluster_queues", "always_resource_quota")

    cluster = models.OneToOneField(Cluster, on_delete=models.PROTECT, related_name="api_server")
    enabled = models.BooleanField(default=True, help_text="Accounts are blocked and unblocked over it.")
    dedicated_cluster_queues = models.JSONField(
        default=list,
        blank=True,
        help_text="ClusterQueues of Kueue that are one account's alone: they are stopped instead of its LocalQueues.",
    )
    always_resource_quota = models.BooleanField(
        default=False,
        help_text="Namespaces get a ResourceQuota of ours also where they have a LocalQueue of Kueue.",
    )

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=~Q(base_url="") | ~Q(unix_socket=""), name="api_server_leads_somewhere"
            )
        ]
        triggers: ClassVar = [stamps("api_server_credentials_stamped", API_SECRETS)]

    def __str__(self) -> str:
        return f"API server of {self.cluster.name} at {self.address}"
