"""Who we are to a Prometheus: nobody, a user with a password, the bearer of a token, or an AWS key or identity
(Signature Version 4)."""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import SplitResult, quote, urlsplit

from clusters.connectors.base import ConnectorError, Secret
from portal.excerpt import quoted

FORM = "application/x-www-form-urlencoded"


def _none() -> Secret:
    return Secret("")


@dataclass(frozen=True, slots=True, kw_only=True)
class PrometheusLogin:
    """At most one of the three. Client certificates and further headers (X-Scope-OrgID) are the endpoint's."""

    user: str = ""
    password: Secret = field(default_factory=_none)
    bearer: Secret = field(default_factory=_none)
    aws: AwsKeys | AwsIdentity | None = None

    def headers(self, url: str, body: bytes, *, clock: Callable[[], int]) -> dict[str, Secret]:
        """What goes with a POST of this form. Raises `ConnectorError` for two ways at once."""
        if sum((bool(self.user), bool(self.bearer), self.aws is not None)) > 1:
            raise ConnectorError("prometheus-logins", retry=False)
        if self.aws is not None:
            keys = self.aws if isinstance(self.aws, AwsKeys) else self.aws.keys(now=clock())
            signed_headers = signed("POST", url, body, {"content-type": FORM}, keys=keys, now=clock())
            return {name: Secret(value) for name, value in signed_headers.items()}
        headers = {"content-type": Secret(FORM)}
        if self.user:
            pair = f"{self.user}:{self.password.reveal()}".encode()
            headers["authorization"] = Secret(f"Basic {b64encode(pair).decode()}")
        if self.bearer:
            headers["authorization"] = Secret(f"Bearer {self.bearer.reveal()}")
        return headers


ALGORITHM = "AWS4-HMAC-SHA256"


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsKeys:
    """An access key, and the region of the workspace. Temporary credentials have a session token too."""

    region: str
    access_key: str
    secret_key: Secret
    session_token: Secret = field(default_factory=lambda: Secret(""))
    service: str = "aps"


_REGION = re.compile(r"[a-z]{2,4}(-[a-z]+)+-\d{1,2}", re.ASCII)


@dataclass(frozen=True, slots=True)
class AwsIdentity:
    """What AWS says of the pod in which this runs, and the region of the workspace. Raises `ConnectorError`."""

    region: str

    def __post_init__(self) -> None:
        # A part of the address to which the pod's token goes.
        if not _REGION.fullmatch(self.region):
            raise ConnectorError("aws-region", retry=False, region=quoted(self.region))

    def keys(self, *, now: int) -> AwsKeys:
        """Temporary ones, renewed before they end. Raises `ConnectorError`."""
        from clusters.connectors.prometheus.aws_identity import temporary_keys  # few need it, and its XML

        keys = temporary_keys(self.region, now=now)
        return AwsKeys(
            region=self.region,
            access_key=keys.access_key,
            secret_key=keys.secret_key,
            session_token=keys.session_token,
        )


def signed(
    method: str, url: str, body: bytes, headers: Mapping[str, str], *, keys: AwsKeys, now: int
) -> dict[str, str]:
    """`headers` and those that sign them: date, session token and authorization. `now` is an epoch second.

    `url` has no query: what is asked stands in the body.
    """
    parts = urlsplit(url)
    moment = f"{datetime.fromtimestamp(now, UTC):%Y%m%dT%H%M%SZ}"
    signed_headers = {name.lower(): " ".join(value.split()) for name, value in headers.items()}
    signed_headers["x-amz-date"] = moment
    if keys.session_token:
        signed_headers["x-amz-security-token"] = keys.session_token.reveal()
    lines = {**signed_headers, "host": _host(parts)}
    names = ";".join(sorted(lines))
    request = "\n".join(
        (
            method,
            quote(quote(parts.path or "/", safe="/-_.~%"), safe="/-_.~"),  # as it is sent, and once more
            "",
            *(f"{name}:{lines[name]}" for name in sorted(lines)),
            "",
            names,
            hashlib.sha256(body).hexdigest(),
        )
    )
    scope = f"{moment[:8]}/{keys.region}/{keys.service}/aws4_request"
    text = "\n".join((ALGORITHM, moment, scope, hashlib.sha256(request.encode()).hexdigest()))
    signature = hmac.new(_key(keys, moment[:8]), text.encode(), hashlib.sha256).hexdigest()
    signed_headers["authorization"] = (
        f"{ALGORITHM} Credential={keys.access_key}/{scope}, SignedHeaders={names}, Signature={signature}"
    )
    return signed_headers


def _host(parts: SplitResult) -> str:
    """As HTTP names it: in small letters, without a port that goes without saying."""
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    usual = {"https": 443, "http": 80}.get(parts.scheme)
    return host if parts.port in {None, usual} else f"{host}:{parts.port}"


def _key(keys: AwsKeys, day: str) -> bytes:
    """The key of that day, region and service."""
    key = b"AWS4" + keys.secret_key.reveal().encode()
    for part in (day, keys.region, keys.service, "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key
