"""How a live cluster is reached and as whom, and how the last pulls over it went."""

from __future__ import annotations

from typing import ClassVar

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q

from clusters.models.cluster import Cluster, ClusterKind
from clusters.models.endpoint import (
    Reach,
    refuse_wrong_meters,
    refuse_wrong_options,
    stamps,
    validate_address,
)
from clusters.models.secrets_guard import refuse_private_keys
from portal.core.audit import track
from portal.core.vault import SealedField

SECRETS = ("client_key", "headers", "token", "jwt_key", "password", "aws")
"""Columns that rest encrypted."""

FITTING = {
    ClusterKind.SLURM: ("jwt_key", "slurm_cluster"),
    ClusterKind.PROMETHEUS: ("password", "aws", "options", "coverage_needed"),
    ClusterKind.GPUSTACK: ("options",),
}
"""Columns that mean something for clusters of some kinds only."""

WHERE = {
    ClusterKind.SLURM: "slurmrestd",
    ClusterKind.PROMETHEUS: "Prometheus",
    ClusterKind.GPUSTACK: "GPUStack",
}
"""What listens at the address."""

STATE = (
    *("api_version", "release", "next_pull_at", "failures", "last_error", "last_success_at", "deep_read_at"),
    *("job_prices_at", "job_prices_error"),
)
"""Columns that syncs move by themselves."""


@track(exclude=[*SECRETS, *STATE])
class Connection(Reach):
    """Where a cluster's slurmrestd, Prometheus or GPUStack listens, what it wants to see, and how often it is read.

    The history has every change of it but no secret: of those it has who changed one, and when.
    """

    cluster = models.OneToOneField(Cluster, on_delete=models.PROTECT, related_name="connection")
    jwt_key = SealedField(
        help_text="The content of jwt_hs256.key in base64: short-lived tokens are made from it."
    )
    slurm_cluster = models.CharField(
        "Slurm's cluster name",
        max_length=100,
        blank=True,
        help_text="ClusterName in slurm.conf; empty: whichever slurmrestd answers for.",
    )
    first_usage_from = models.DateTimeField(
        null=True, blank=True, help_text="Where the first sync begins; empty: one look-back before it."
    )
    every = models.PositiveIntegerField(
        default=300,
        validators=[MinValueValidator(30), MaxValueValidator(86_400)],
        help_text="Seconds from one sync to the next.",
    )
    look_back = models.PositiveIntegerField(
        default=48,
        validators=[MinValueValidator(1), MaxValueValidator(24 * 62)],
        help_text="Hours behind the watermark that are read again once an hour, for what came late or changed.",
    )
    coverage_needed = models.PositiveSmallIntegerField(
        default=90,
        validators=[MaxValueValidator(100)],
        help_text="Percent of an hour in which kube-state-metrics has to have been seen: months with an hour below are "
        "closed only by an operator's word.",
    )
    enabled = models.BooleanField(default=True, help_text="It is pulled on schedule.")

    api_version = models.CharField(max_length=20, blank=True, editable=False)
    release = models.CharField(max_length=40, blank=True, editable=False)
    next_pull_at = models.DateTimeField(
        null=True, editable=False, help_text="Not due before; empty: due now. Put off when it is begun."
    )
    failures = models.PositiveIntegerField(default=0, editable=False, help_text="Syncs that failed in a row.")
    last_error = models.TextField(blank=True, editable=False)
    last_success_at = models.DateTimeField(null=True, editable=False)
    deep_read_at = models.DateTimeField(
        null=True, editable=False, help_text="When the whole look-back was last read."
    )
    job_prices_at = models.DateTimeField(
        null=True, editable=False, help_text="When prices were last written into jobs."
    )
    job_prices_error = models.TextField(blank=True, editable=False, help_text="Why they could not be.")

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(condition=Q(every__gte=30), name="connection_leaves_the_source_time"),
            models.CheckConstraint(condition=Q(look_back__gte=1), name="connection_looks_back"),
            models.CheckConstraint(
                condition=~Q(base_url="") | ~Q(unix_socket=""), name="connection_leads_somewhere"
            ),
        ]
        triggers: ClassVar = [
            stamps("connection_credentials_stamped", SECRETS),
        ]

    def __str__(self) -> str:
        return f"{self.cluster.name} at {self.address}"

    def clean(self) -> None:
        kind = ClusterKind(self.cluster.kind) if self.cluster_id else ClusterKind.IMPORT
        if not self.base_url and not self.unix_socket:
            raise ValidationError(
                {
                    "base_url": f"Say where {WHERE.get(kind, 'it')} listens: an address, or a socket of this host."
                }
            )
        try:
            if self.base_url:
                validate_address(self.base_url)
        except ValidationError as error:
            raise ValidationError({"base_url": f"The address: {error.messages[0]}"}) from None
        refuse_private_keys(self)
        if kind == ClusterKind.PROMETHEUS:
            refuse_wrong_options(self.options)
        elif kind == ClusterKind.GPUSTACK:
            refuse_wrong_meters(self.options)
        if misfit := self.misfit(kind):
            raise ValidationError(misfit)

    def misfit(self, kind: str) -> str:
        """What in it contradicts itself, for a cluster of that kind: a sentence, or ""."""
        if kind not in {ClusterKind.PROMETHEUS, ClusterKind.GPUSTACK}:
            return ""
        is_prometheus = kind == ClusterKind.PROMETHEUS
        try:
            (refuse_wrong_options if is_prometheus else refuse_wrong_meters)(self.options)
        except ValidationError as error:
            return str(error.messages[0])
        return self.prometheus_misfit() if is_prometheus else ""
