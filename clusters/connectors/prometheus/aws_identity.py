"""Keys for as long as AWS gives them to a workload: IAM roles for service accounts, and EKS Pod Identity.

Who the workload is, AWS itself writes into the environment of its pods, by the names that its own libraries read:
<https://docs.aws.amazon.com/sdkref/latest/guide/standardized-credentials.html>. *Not yet seen from a live source.*
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from threading import Lock
from urllib.parse import parse_qsl, urlencode, urlsplit

from lxml import etree

from clusters.connectors.base import ConnectorError, Secret
from clusters.connectors.http import Endpoint, Http
from portal.excerpt import excerpt, quoted

SOON = 300  # seconds before their end keys are renewed
TIMEOUT = 10  # seconds
LARGEST = 1 << 20  # bytes of an answer
FORM = "application/x-www-form-urlencoded"
SESSION = "clustertab"
STS = ("AccessKeyId", "SecretAccessKey", "SessionToken", "Expiration")
AGENT = ("AccessKeyId", "SecretAccessKey", "Token", "Expiration")
"""What the two call what they give."""


@dataclass(frozen=True, slots=True)
class TemporaryKeys:
    """Of use until an epoch second."""

    access_key: str
    secret_key: Secret
    session_token: Secret
    end: int


_cache: dict[tuple[str, ...], TemporaryKeys] = {}
_lock = Lock()


def temporary_keys(region: str, *, now: int, environ: Mapping[str, str] = os.environ) -> TemporaryKeys:
    """What AWS gives this process, kept until shortly before its end. Raises ConnectorError."""
    role, file = environ.get("AWS_ROLE_ARN", ""), environ.get("AWS_WEB_IDENTITY_TOKEN_FILE", "")
    uri = environ.get("AWS_CONTAINER_CREDENTIALS_FULL_URI", "")
    if not uri and not (role and file):
        raise ConnectorError("aws-no-identity", retry=True)
    place = (region, role, file, uri)
    with _lock:  # so that threads of one sync ask once
        keys = _cache.get(place)
        if keys is None or keys.end <= now + SOON:
            by_role = role and file
            keys = _assume_role(region, role, file, environ) if by_role else _ask_agent(uri, environ)
            _cache[place] = keys
        return keys


def _assume_role(region: str, role: str, file: str, environ: Mapping[str, str]) -> TemporaryKeys:
    """By the token that Kubernetes has signed: AssumeRoleWithWebIdentity, which needs no signature."""
    suffix = ".com.cn" if region.startswith("cn-") else ".com"
    url = environ.get("AWS_ENDPOINT_URL_STS") or f"https://sts.{region}.amazonaws{suffix}"
    form = {
        "Action": "AssumeRoleWithWebIdentity",
        "Version": "2011-06-15",
        "RoleArn": role,
        "RoleSessionName": environ.get("AWS_ROLE_SESSION_NAME") or SESSION,
        "WebIdentityToken": _token(file),
    }
    headers = {"content-type": Secret(FORM)}
    with Http(Endpoint(base_url=url, timeout=TIMEOUT), largest=LARGEST) as http:
        answer = http.call("POST", "/", content=urlencode(form).encode(), headers=headers)
        values = _texts(answer.body)
        if answer.status != 200:
            reason = f"{values.get('Code', answer.status)}: {values.get('Message', '').strip()}"
            raise _refused(http.address, reason, retry=answer.status >= 500)
        return _read(http.address, values, STS)


def _ask_agent(uri: str, environ: Mapping[str, str]) -> TemporaryKeys:
    """The one of EKS Pod Identity on the node."""
    parts = urlsplit(uri)
    file = environ.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "")
    token = _token(file) if file else environ.get("AWS_CONTAINER_AUTHORIZATION_TOKEN", "")
    headers = {"authorization": Secret(token)} if token else {}
    base = f"{parts.scheme}://{parts.netloc}"
    with Http(Endpoint(base_url=base, timeout=TIMEOUT), largest=LARGEST) as http:
        answer = http.call("GET", parts.path or "/", headers=headers, params=dict(parse_qsl(parts.query)))
        try:
            values = json.loads(answer.body)
        except ValueError:
            values = None
        if answer.status != 200 or not isinstance(values, dict):
            reason = values.get("message", "") if isinstance(values, dict) else ""
            raise _refused(http.address, f"{answer.status}: {reason}", retry=answer.status >= 500)
        return _read(http.address, values, AGENT)


def _read(address: str, values: Mapping[str, object], names: Sequence[str]) -> TemporaryKeys:
    try:
        access_key, secret_key, token, end = (str(values[name]) for name in names)
        end_second = int(datetime.fromisoformat(end).timestamp())
    except (KeyError, ValueError):  # without the cause, which holds the keys
        raise _refused(address, "its answer holds no keys", retry=True) from None
    return TemporaryKeys(access_key, Secret(secret_key), Secret(token), end_second)


def _texts(body: bytes) -> dict[str, str]:
    """By the name of its element; nothing of what is no XML."""
    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False)
    try:
        root = etree.fromstring(body, parser)
    except etree.XMLSyntaxError:
        return {}
    return {etree.QName(row).localname: row.text or "" for row in root.iter("{*}*")}


def _token(file: str) -> str:
    """Kubernetes renews it in place."""
    try:
        return Path(file).read_text().strip()
    except (OSError, UnicodeDecodeError):
        raise ConnectorError("aws-no-token", retry=True, path=quoted(file)) from None


def _refused(address: str, reason: str, *, retry: bool) -> ConnectorError:
    return ConnectorError("aws-identity-refused", retry=retry, address=address, reason=excerpt(reason))
