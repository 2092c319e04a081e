"""Signatures after the Standard Webhooks specification (https://www.standardwebhooks.com), symmetric."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Sequence

MARK = "whsec_"
SIZE = 32  # bytes; the specification wants 24 to 64


def new_secret() -> str:
    """A secret as receivers keep it: `whsec_` and 32 random bytes in base64."""
    return MARK + base64.b64encode(secrets.token_bytes(SIZE)).decode()


def headers(*, message: str, timestamp: int, body: bytes, keys: Sequence[str]) -> dict[str, str]:
    """What a receiver verifies: the message's id, the attempt's time in seconds of Unix, a signature by each key."""
    signed = b"%s.%d.%s" % (message.encode(), timestamp, body)
    digests = [hmac.digest(base64.b64decode(key.removeprefix(MARK)), signed, hashlib.sha256) for key in keys]
    return {
        "webhook-id": message,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": " ".join(f"v1,{base64.b64encode(digest).decode()}" for digest in digests),
    }
