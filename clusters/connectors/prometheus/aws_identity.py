"""Keys for as long as AWS gives them to a workload: IAM roles for service accounts, and EKS Pod Identity.

Who the workload is, AWS itself writes into the environment of its pods, by the names that its own libraries read:
<https://docs.aws.amazon.com/sdkref/latest/guide/standardized-credentials.html>. *Not yet seen from a live source.*
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from threading import Lock
from urllib.parse import urlencode, urlsplit

from lxml import etree

from clusters.connectors.base import ConnectorError, Secret
from clusters.connectors.http import Endpoint, Http
from portal.excerpt import excerpt, quoted

SOON = 300  # seconds before their end keys are renewed
TIMEOUT = 10  # seconds
LARGEST = 1 << 20
FORM = "application/x-www-form-urlencoded"
SESSION = "clustertab"
STS = ("AccessKeyId", "SecretAccessKey", "SessionToken", "Expiration")
AGENT = ("AccessKeyId", "SecretAccessKey", "Token", "Expiration")
"""What the two call what they give."""

Given = tuple[str, Secret, Secret, int]
"""Access key, secret key, session token, and the epoch second at which they end."""

_given: dict[tuple[str, ...], Given] = {}
_lock = Lock()


def given_keys(region: str, *, now: int, environ: Mapping[str, str] = os.environ) -> Given:
    """What AWS gives this process, kept until shortly before its end. Raises ConnectorError."""
    role, file = environ.get("AWS_ROLE_ARN", ""), environ.get("AWS_WEB_IDENTITY_TOKEN_FILE", "")
    uri = environ.get("AWS_CONTAINER_CREDENTIALS_FULL_URI", "")
    if not uri and not (role and file):
        raise ConnectorError("aws-no-identity", retry=True)
    place = (region, role, file, uri)
    with _lock:
        given = _given.get(place)
        if given is None or given[3] <= now + SOON:
            given = _given[place] = (
                _assumed(region, role, file, environ) if role and file else _of_container(uri, environ)
            )
        return given


def _assumed(region: str, role: str, file: str, environ: Mapping[str, str]) -> Given:
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
        root = _xml(answer.body)
        values = (
            {} if root is None else {etree.QName(row).localname: row.text or "" for row in root.iter("{*}*")}
        )
        if answer.status != 200:
            reason = f"{values.get('Code', answer.status)}: {values.get('Message', '').strip()}"
            raise _refused(http.address, reason, retry=answer.status >= 500)
        return _read(http.address, values, STS)


def _of_container(uri: str, environ: Mapping[str, str]) -> Given:
    """From the agent on the node."""
    parts = urlsplit(uri)
    file = environ.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "")
    token = _token(file) if file else environ.get("AWS_CONTAINER_AUTHORIZATION_TOKEN", "")
    headers = {"authorization": Secret(token)} if token else {}
    params = dict(pair.split("=", 1) for pair in parts.query.split("&") if "=" in pair)
    base = f"{parts.scheme}://{parts.netloc}"
    with Http(Endpoint(base_url=base, timeout=TIMEOUT), largest=LARGEST) as http:
        answer = http.call("GET", parts.path or "/", headers=headers, params=params)
        try:
            values = json.loads(answer.body)
        except ValueError:
            values = None
        if answer.status != 200 or not isinstance(values, dict):
            reason = values.get("message", "") if isinstance(values, dict) else ""
            raise _refused(http.address, f"{answer.status}: {reason}", retry=answer.status >= 500)
        return _read(http.address, values, AGENT)


def _read(address: str, values: Mapping[str, object], names: Sequence[str]) -> Given:
    try:
        access, secret, token, end = (str(values[name]) for name in names)
        return access, Secret(secret), Secret(token), int(datetime.fromisoformat(end).timestamp())
    except (KeyError, ValueError):  # without the cause, which holds the keys
        raise _refused(address, "its answer holds no keys", retry=True) from None


def _xml(body: bytes) -> etree._Element | None:
    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False)
    try:
        return etree.fromstring(body, parser)
    except etree.XMLSyntaxError:
        return None


def _token(file: str) -> str:
    """Kubernetes renews it in place."""
    try:
        return Path(file).read_text().strip()
    except (OSError, UnicodeDecodeError):
        raise ConnectorError("aws-no-token", retry=True, path=quoted(file)) from None


def _refused(address: str, reason: str, *, retry: bool) -> ConnectorError:
    return ConnectorError("aws-identity-refused", retry=retry, address=address, reason=excerpt(reason))
