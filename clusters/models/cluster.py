"""Clusters and the accounts that their schedulers name."""

from __future__ import annotations

from typing import ClassVar

import pgtrigger
from django.core.exceptions import ValidationError
from django.db import models

from portal.core.audit import track


class ClusterError(Exception):
    """A cluster cannot be changed so; the message says why and what to do."""


class ClusterKind(models.TextChoices):
    IMPORT = "import", "Accounting files"
    SLURM = "slurm", "Slurm over slurmrestd"
    PROMETHEUS = "prometheus", "Kubernetes over Prometheus"
    GPUSTACK = "gpustack", "GPUStack over its usage API"
    PUSH = "push", "Usage that a program pushes"


ZONE_IN_USE = (
    "Usage has been read in this cluster's zone, which is part of what identifies a job: read in another, every "
    "file would bill its jobs anew. Give the other zone to a new cluster."
)
_GUARD_ZONE = f"""
IF NEW.timezone <> OLD.timezone AND EXISTS (SELECT 1 FROM clusters_usagerecord WHERE cluster_id = OLD.id) THEN
    RAISE EXCEPTION '{ZONE_IN_USE.replace("'", "''")}';
END IF;
RETURN NEW;
"""  # noqa: S608 - a constant sentence


def _while_used(column: str) -> pgtrigger.Trigger:
    """Refuses what a foreign key of the usage records would refuse, at no cost per record."""
    return pgtrigger.Trigger(
        name=f"{column}_with_usage_is_kept",
        when=pgtrigger.After,
        operation=pgtrigger.Delete | pgtrigger.Update,
        func=f"""
IF (TG_OP = 'DELETE' OR NEW.id <> OLD.id) AND EXISTS (SELECT 1 FROM clusters_usagerecord WHERE {column}_id = OLD.id)
THEN
    RAISE EXCEPTION 'Usage of this {column} is recorded, so it is kept.' USING ERRCODE = 'foreign_key_violation';
END IF;
RETURN NULL;
""",  # noqa: S608 - one of two constants
    )


@track(exclude=["complete_through"])
class Cluster(models.Model):
    """A scheduler and its machines, as the operator names them."""

    Kind = ClusterKind

    name = models.CharField(max_length=100, unique=True)
    kind = models.CharField(max_length=20, choices=ClusterKind.choices, default=ClusterKind.IMPORT)
    timezone = models.CharField(
        max_length=64, default="UTC", help_text="IANA zone in which accounting files print their times."
    )
    shares = models.JSONField(
        "shares of MIG slices and shards",
        default=dict,
        blank=True,
        help_text="Parts of a GPU by model and MIG profile, before the known ones, and Slurm's shards: "
        '{"a100": {"1g.10gb": "1/4", "shard": "1/4", "shard@gpu[05-08]": "1/8"}}.',
    )
    may_end_jobs = models.BooleanField(
        "running jobs may be ended",
        default=False,
        help_text="An operator's leave: without it, a quota that ends jobs only keeps new ones from starting here, and "
        "a waste rule only notifies.",
    )
    job_prices = models.BooleanField(
        "write prices into jobs",
        default=False,
        help_text="What a job costs and what is left of its budget, in Slurm's admin_comment: for all who see the job.",
    )
    energy_meter = models.ForeignKey(
        "DeclaredMeter",
        on_delete=models.PROTECT,
        to_field="name",
        null=True,
        blank=True,
        related_name="+",
        help_text="Its unit has 3,600,000 joules (kWh). It counts the energy that the source measured; empty: none.",
    )
    complete_through = models.DateTimeField(
        null=True,
        blank=True,
        editable=False,
        help_text="Watermark: all usage before this moment has been read. Moves in the transaction of its rows.",
    )
    watermark_reset_from = models.DateTimeField(
        null=True, editable=False, help_text="Where the watermark stood before an operator last reset it."
    )
    watermark_reset_to = models.DateTimeField(
        null=True, editable=False, help_text="Where that took it; empty: to none."
    )

    class Meta:
        triggers: ClassVar = [
            pgtrigger.Trigger(
                name="cluster_zone_is_kept",
                when=pgtrigger.Before,
                operation=pgtrigger.Update,
                func=_GUARD_ZONE,
            ),
            _while_used("cluster"),
        ]

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        from clusters.connectors.base import ConnectorError  # not for every process: it loads the client
        from clusters.connectors.mig import own_shares
        from portal.sentences import sentence

        try:
            own_shares(self.shares, "shares")
        except ConnectorError as error:
            raise ValidationError({"shares": sentence(error)}) from None
        self._clean_meter()
        stored = Cluster.objects.filter(pk=self.pk).first()
        if stored is not None and stored.timezone != self.timezone:
            try:
                stored.refuse_new_zone()
            except ClusterError as error:
                raise ValidationError({"timezone": str(error)}) from error

    def _clean_meter(self) -> None:
        from clusters.energy import refuse_other_units  # it reads these models

        try:
            if self.energy_meter is not None:
                refuse_other_units(self.energy_meter)
        except ClusterError as error:
            raise ValidationError({"energy_meter": str(error)}) from error

    def refuse_new_zone(self) -> None:
        """Raise ClusterError once usage has been read; the database refuses likewise."""
        if self.usagerecord_set.exists():
            raise ClusterError(ZONE_IN_USE)


class Account(models.Model):
    """The scheduler's name for who used it; which tenant owns it is a later fact."""

    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="accounts")
    name = models.CharField(max_length=255, blank=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["cluster", "name"], name="account_is_named_once_per_cluster")
        ]
        triggers: ClassVar = [_while_used("account")]

    def __str__(self) -> str:
        return f"{self.cluster.name}/{self.name}"
