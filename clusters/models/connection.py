"""How a live cluster is reached and as whom, and how the last passes over it went."""

from __future__ import annotations

from typing import ClassVar
from urllib.parse import urlsplit

import pgtrigger
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q

from clusters.models.cluster import Cluster, ClusterKind
from clusters.models.guarding import refuse_private_keys
from portal.audit import track
from portal.vault import SealedField

SECRETS = ("client_key", "headers", "token", "jwt_key", "password", "aws")
"""Columns that rest encrypted."""

FITTING = {
    ClusterKind.SLURM: ("jwt_key", "slurm_cluster"),
    ClusterKind.PROMETHEUS: ("password", "aws", "options"),
}
"""Columns that mean something for clusters of one kind only."""

WHERE = {ClusterKind.SLURM: "slurmrestd", ClusterKind.PROMETHEUS: "Prometheus"}
"""What listens at the address."""

STATE = (
    *("api_version", "release", "next_pull_at", "failures", "last_error", "last_success_at", "deep_read_at"),
)
"""Columns that passes move by themselves."""

_STAMP = f"""
IF TG_OP = 'INSERT' OR ({", ".join(f"NEW.{name}" for name in SECRETS)})
        IS DISTINCT FROM ({", ".join(f"OLD.{name}" for name in SECRETS)}) THEN
    NEW.credentials_changed_at = clock_timestamp();
END IF;
RETURN NEW;
"""


def known_address(url: str) -> None:
    """Refuse what is no address of HTTP, and a password that would stand in clear in one."""
    try:
        parts = urlsplit(url)
        told = parts.port, parts.hostname
    except ValueError:
        raise ValidationError("its port or host is none.") from None
    if parts.scheme not in {"http", "https"} or not told[1] or parts.query or parts.fragment:
        raise ValidationError("write scheme, host and port, like https://slurm.example.org:6820.")
    if parts.username or parts.password:
        raise ValidationError(
            "leave the password out; a proxy's belongs into the headers, which rest encrypted."
        )


def _refuse_wrong_options(told: object) -> None:
    """Raises ValidationError."""
    from clusters.connectors.base import ConnectorError  # not for every process: it loads the client
    from clusters.connectors.prometheus.told import options_from

    try:
        options_from(told)
    except ConnectorError as error:
        raise ValidationError({"options": str(error)}) from None


@track(exclude=[*SECRETS, *STATE])
class Connection(models.Model):
    """Where a cluster's slurmrestd or Prometheus listens, what it wants to see of us, and how often it is read.

    The history has every change of it but no secret: of those it has who changed one, and when.
    """

    cluster = models.OneToOneField(Cluster, on_delete=models.PROTECT, related_name="connection")
    base_url = models.CharField(
        "address",
        max_length=500,
        blank=True,
        help_text="Scheme, host, port and path prefix: https://slurm.example.org:6820, https://mimir.example.org/prometheus.",
    )
    unix_socket = models.CharField(
        max_length=255,
        blank=True,
        help_text="Path of its socket on this host, instead of an address.",
    )
    ca = models.TextField(
        "certificate authorities", blank=True, help_text="PEM of those to trust; empty: the system's."
    )
    client_certificate = models.TextField(blank=True, help_text="PEM that we show.")
    client_key = SealedField(help_text="PEM, for the client certificate.")
    headers = SealedField(help_text="Extra headers for an authenticating proxy, as a JSON object.")
    user = models.CharField(
        max_length=100,
        blank=True,
        help_text="Slurm: whose token it is, with AdminLevel Operator. Prometheus: whose password it is.",
    )
    token = SealedField(help_text="Slurm: a JWT, as `scontrol token` prints it. Prometheus: a bearer token.")
    jwt_key = SealedField(
        help_text="The content of jwt_hs256.key in base64: short-lived tokens are made from it."
    )
    slurm_cluster = models.CharField(
        "Slurm's cluster name",
        max_length=100,
        blank=True,
        help_text="ClusterName in slurm.conf; empty: whichever slurmrestd answers for.",
    )
    password = SealedField(help_text="Of the user of a Prometheus, for basic authentication.")
    aws = SealedField(help_text="AWS keys for Amazon Managed Service for Prometheus, as a JSON object.")
    options = models.JSONField(
        default=dict,
        blank=True,
        help_text="How the series of a Prometheus are read, as a JSON object; docs/kubernetes.md has its keys.",
    )
    first_usage_from = models.DateTimeField(
        null=True, blank=True, help_text="Where the first pass begins; empty: one look-back before it."
    )
    every = models.PositiveIntegerField(
        default=300,
        validators=[MinValueValidator(30), MaxValueValidator(86_400)],
        help_text="Seconds from one pass to the next.",
    )
    look_back = models.PositiveIntegerField(
        default=48,
        validators=[MinValueValidator(1), MaxValueValidator(24 * 62)],
        help_text="Hours behind the watermark that are read again once an hour, for what came late or changed.",
    )
    enabled = models.BooleanField(default=True, help_text="It is pulled on schedule.")
    credentials_changed_at = models.DateTimeField(
        null=True, editable=False, help_text="When a secret was last changed; the database writes it."
    )

    api_version = models.CharField(max_length=20, blank=True, editable=False)
    release = models.CharField(max_length=40, blank=True, editable=False)
    next_pull_at = models.DateTimeField(
        null=True, editable=False, help_text="Not due before; empty: due now. Put off when it is begun."
    )
    failures = models.PositiveIntegerField(
        default=0, editable=False, help_text="Passes that failed in a row."
    )
    last_error = models.TextField(blank=True, editable=False)
    last_success_at = models.DateTimeField(null=True, editable=False)
    deep_read_at = models.DateTimeField(
        null=True, editable=False, help_text="When the whole look-back was last read."
    )

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(condition=Q(every__gte=30), name="connection_leaves_the_source_time"),
            models.CheckConstraint(condition=Q(look_back__gte=1), name="connection_looks_back"),
            models.CheckConstraint(
                condition=~Q(base_url="") | ~Q(unix_socket=""), name="connection_leads_somewhere"
            ),
        ]
        triggers: ClassVar = [
            pgtrigger.Trigger(
                name="connection_credentials_stamped",
                when=pgtrigger.Before,
                operation=pgtrigger.Insert | pgtrigger.Update,
                func=_STAMP,
            )
        ]

    def __str__(self) -> str:
        return f"{self.cluster.name} at {self.address}"

    @property
    def address(self) -> str:
        """Where it listens, as people write it."""
        return f"unix:{self.unix_socket}" if self.unix_socket else self.base_url

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
                known_address(self.base_url)
        except ValidationError as error:
            raise ValidationError({"base_url": f"The address: {error.messages[0]}"}) from None
        refuse_private_keys(self)
        if kind == ClusterKind.PROMETHEUS:
            _refuse_wrong_options(self.options)
        if misfit := self.misfit(kind):
            raise ValidationError(misfit)

    def misfit(self, kind: str) -> str:
        """What in it contradicts itself, for a cluster of that kind: a sentence, or ""."""
        if kind != ClusterKind.PROMETHEUS:
            return ""
        if sum(map(bool, (self.user, self.token, self.aws))) > 1:
            return "More than one of user, token and AWS keys is given: keep the one that is meant."
        return "There is a password without a user." if self.password and not self.user else ""
