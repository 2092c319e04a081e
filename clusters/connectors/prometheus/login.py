"""Who we are to a Prometheus: nobody, a user with a password, the bearer of a token, or an AWS key."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass, field

from clusters.connectors.base import ConnectorError, Secret
from clusters.connectors.prometheus.signing import AwsKeys, signed

FORM = "application/x-www-form-urlencoded"


def _none() -> Secret:
    return Secret("")


@dataclass(frozen=True, slots=True, kw_only=True)
class PrometheusLogin:
    """At most one of the three. Client certificates and further headers (X-Scope-OrgID) are the endpoint's."""

    user: str = ""
    password: Secret = field(default_factory=_none)
    bearer: Secret = field(default_factory=_none)
    aws: AwsKeys | None = None

    def headers(self, url: str, body: bytes, *, clock: Callable[[], int]) -> dict[str, Secret]:
        """What goes with a POST of this form. Raises `ConnectorError` for two ways at once."""
        if sum((bool(self.user), bool(self.bearer), self.aws is not None)) > 1:
            raise ConnectorError(
                "The connection has more than one of user, bearer token and AWS key: keep the one that is meant.",
                retry=False,
            )
        if self.aws is not None:
            signed_headers = signed("POST", url, body, {"content-type": FORM}, keys=self.aws, now=clock())
            return {name: Secret(value) for name, value in signed_headers.items()}
        headers = {"content-type": Secret(FORM)}
        if self.user:
            pair = f"{self.user}:{self.password.reveal()}".encode()
            headers["authorization"] = Secret(f"Basic {b64encode(pair).decode()}")
        if self.bearer:
            headers["authorization"] = Secret(f"Bearer {self.bearer.reveal()}")
        return headers
