"""How something that listens over HTTP is reached, and as whom: of schedulers and of what watches them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar
from urllib.parse import urlsplit

import pgtrigger
from django.core.exceptions import ValidationError
from django.db import models

from portal.core.vault import SealedField


def validate_address(url: str) -> None:
    """Refuse what is no address of HTTP, and a password that would stand in clear in one."""
    try:
        parts = urlsplit(url)
        place = parts.port, parts.hostname
    except ValueError:
        raise ValidationError("its port or host is none.") from None
    if parts.scheme not in {"http", "https"} or not place[1] or parts.query or parts.fragment:
        raise ValidationError("write scheme, host and port, like https://slurm.example.org:6820.")
    if parts.username or parts.password:
        raise ValidationError(
            "leave the password out; a proxy's belongs into the headers, which rest encrypted."
        )


def refuse_wrong_options(options: object) -> None:
    """Raises ValidationError."""
    from clusters.connectors.base import ConnectorError  # not for every process: it loads the client
    from clusters.connectors.prometheus.option_parsing import options_from
    from portal.sentences import sentence

    try:
        options_from(options)
    except ConnectorError as error:
        raise ValidationError({"options": sentence(error)}) from None


def refuse_wrong_meters(options: object) -> None:
    """As `refuse_wrong_options`, of a GPUStack."""
    from clusters.connectors.base import ConnectorError  # not for every process: it loads the client
    from clusters.connectors.gpustack.options import options_from
    from portal.sentences import sentence

    try:
        options_from(options)
    except ConnectorError as error:
        raise ValidationError({"options": sentence(error)}) from None


def stamps(name: str, secrets: Sequence[str]) -> pgtrigger.Trigger:
    """Has the database write when one of the secrets was last changed."""
    return pgtrigger.Trigger(
        name=name,
        when=pgtrigger.Before,
        operation=pgtrigger.Insert | pgtrigger.Update,
        func=f"""
IF TG_OP = 'INSERT' OR ({", ".join(f"NEW.{one}" for one in secrets)})
        IS DISTINCT FROM ({", ".join(f"OLD.{one}" for one in secrets)}) THEN
    NEW.credentials_changed_at = clock_timestamp();
END IF;
RETURN NEW;
""",
    )


class Address(models.Model):
    """The columns of an address, and of how we show who we are there."""

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
    token = SealedField(
        help_text="Slurm: a JWT, as `scontrol token` prints it. Prometheus, Kubernetes: a bearer token."
    )
    credentials_changed_at = models.DateTimeField(
        null=True, editable=False, help_text="When a secret was last changed; the database writes it."
    )

    class Meta:
        abstract = True

    @property
    def address(self) -> str:
        """Where it listens, as people write it."""
        return f"unix:{self.unix_socket}" if self.unix_socket else self.base_url


class Reach(Address):
    """An address, and the columns of how a Prometheus is read."""

    OWN_COLUMNS: ClassVar = ("user", "options")

    user = models.CharField(
        max_length=100,
        blank=True,
        help_text="Slurm: whose token it is, with AdminLevel Operator. Prometheus: whose password it is.",
    )
    password = SealedField(help_text="Of the user of a Prometheus, for basic authentication.")
    aws = SealedField(help_text="AWS keys for Amazon Managed Service for Prometheus, as a JSON object.")
    options = models.JSONField(
        default=dict,
        blank=True,
        help_text="Options of a Prometheus, as a JSON object; docs/how-to/connect-kubernetes.md lists its keys.",
    )

    class Meta:
        abstract = True

    def prometheus_misfit(self) -> str:
        """What in it contradicts itself if a Prometheus listens there: a sentence, or ""."""
        if sum(map(bool, (self.user, self.token, self.aws))) > 1:
            return "More than one of user, token and AWS keys is given: keep the one that is meant."
        return "There is a password without a user." if self.password and not self.user else ""
