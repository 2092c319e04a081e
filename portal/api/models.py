"""Keys of the API, and the answers that are sent again when a request is repeated."""

from __future__ import annotations

from typing import ClassVar

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from clusters.models import Cluster
from portal.core.audit import track
from portal.core.tenants.models import Project, Tenant, User


@track(
    exclude=["used_at", "used_from", "previous_used_at", "digest", "previous_digest", "announced_at"],
    personal=["used_from"],
)
class ApiKey(models.Model):
    """A key of a tenant, or of an operator where it has no tenant. The secret is shown once; its SHA-256 is stored."""

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, null=True, related_name="api_keys")
    project = models.ForeignKey(
        Project, on_delete=models.PROTECT, null=True, related_name="+", help_text="Empty: all projects."
    )
    cluster = models.ForeignKey(
        Cluster,
        on_delete=models.PROTECT,
        null=True,
        related_name="+",
        help_text="Of an operator's key that asks and reserves for jobs of this cluster, and does nothing else.",
    )
    name = models.CharField(max_length=100, help_text="What it is used for.")
    maker = models.ForeignKey(
        User, on_delete=models.PROTECT, related_name="+", help_text="Its role limits what the key may do."
    )
    is_service = models.BooleanField(
        default=False, help_text="It stays valid when its maker leaves the tenant. Only owners make one."
    )
    scopes = ArrayField(models.CharField(max_length=20), help_text="What it may do.")
    prefix = models.CharField(
        max_length=8, unique=True, help_text="The part that is shown after its creation."
    )
    digest = models.BinaryField(max_length=32, help_text="SHA-256 of the whole key.")
    previous_digest = models.BinaryField(
        max_length=32, null=True, help_text="Of the key before the last rotation."
    )
    previous_until = models.DateTimeField(null=True, help_text="Until then the previous secret is valid.")
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField(null=True, help_text="Empty: never.")
    revoked_at = models.DateTimeField(null=True)
    announced_at = models.DateTimeField(null=True, help_text="When the owners were mailed of it.")
    used_at = models.DateTimeField(null=True, help_text="Last use, to the hour.")
    used_from = models.GenericIPAddressField(null=True, help_text="Address of the last use.")
    previous_used_at = models.DateTimeField(
        null=True, help_text="Last use of the previous secret, to the hour."
    )

    maker_role: str | None = None
    """The maker's in the tenant, as `keys.find` reads it with the key; None: no member. Of the instance, not stored."""
    maker_users: tuple[str, ...] = ()
    """The maker's names on the clusters, so read."""

    class Meta:
        verbose_name = "API key"
        constraints: ClassVar = [
            models.CheckConstraint(condition=~Q(scopes=[]), name="api_key_has_a_scope"),
            models.CheckConstraint(
                condition=Q(project__isnull=True) | Q(tenant__isnull=False),
                name="api_key_of_a_project_has_a_tenant",
            ),
            models.CheckConstraint(
                condition=Q(cluster__isnull=True) & ~Q(scopes__overlap=["jobs:check", "jobs:reserve"])
                | Q(
                    cluster__isnull=False,
                    tenant__isnull=True,
                    scopes__contained_by=["jobs:check", "jobs:reserve"],
                ),
                name="api_key_of_a_cluster_only_asks",
            ),
        ]
        indexes: ClassVar = [models.Index("tenant", "id", name="api_keys_of_tenant")]

    def __str__(self) -> str:
        return f"{self.name} (ct_live_{self.prefix}…)"


class IdempotentRequest(models.Model):
    """The answer to a POST with an Idempotency-Key: a row of the transaction that did what the request wanted."""

    owner = models.CharField(
        max_length=40, help_text="`tenant:ID`, `cluster:ID` or `operator`: whose key the request came with."
    )
    key = models.CharField(max_length=255)
    digest = models.BinaryField(max_length=32, help_text="SHA-256 of method, path, query and body.")
    status = models.PositiveSmallIntegerField(help_text="Of HTTP; 0 while a gateway or scheduler is called.")
    content_type = models.CharField(max_length=100)
    body = models.BinaryField()
    created_at = models.DateTimeField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["owner", "key"], name="idempotency_key_is_used_once"),
        ]
        indexes: ClassVar = [models.Index("created_at", name="idempotent_requests_by_age")]

    def __str__(self) -> str:
        return f"{self.owner} {self.key}"
