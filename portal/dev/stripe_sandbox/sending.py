"""One webhook: what is in it, how it is signed, and the sending itself."""

from __future__ import annotations

import hashlib
import hmac
import http.client
from dataclasses import dataclass
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Message:
    """What an endpoint gets: the raw body and its headers."""

    event: str
    type: str
    url: str
    body: bytes
    headers: dict[str, str]


def signature(body: bytes, secrets: list[str], at: int) -> str:
    """`t=…,v1=…`, one v1 for each secret that is in force."""
    signed = str(at).encode() + b"." + body
    signatures = [hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest() for secret in secrets]
    return ",".join([f"t={at}", *(f"v1={one}" for one in signatures)])


def posted(message: Message) -> int:
    """Send it: the status, 0 if nobody answered."""
    parts = urlsplit(message.url)
    https = parts.scheme == "https"
    connect = http.client.HTTPSConnection if https else http.client.HTTPConnection
    connection = connect(parts.hostname or "", parts.port, timeout=10)
    try:
        path = parts.path + (f"?{parts.query}" if parts.query else "")
        connection.request("POST", path or "/", message.body, message.headers)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()
