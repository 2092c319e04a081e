"""ClusterTab's REST API with one key, for reading only."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException
from typing import Any

TIMEOUT = 60  # seconds
LARGEST = 32 << 20  # bytes of an answer


class ApiError(Exception):
    """A sentence: what is wrong, and what to do."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """The key goes to the address that was entered, and to no other."""

    def redirect_request(self, *_args: Any, **_kwargs: Any) -> None:
        return None


class Api:
    """`get` reads an address; `quote` asks what a job would cost. Nothing here changes anything."""

    def __init__(self, url: str, key: str) -> None:
        parts = urllib.parse.urlsplit(url)
        if not parts.hostname or parts.scheme not in {"http", "https"}:
            raise ApiError(
                "Set CLUSTERTAB_URL to the address of ClusterTab, such as https://billing.example."
            )
        if parts.scheme != "https" and parts.hostname not in {"127.0.0.1", "localhost", "::1"}:
            raise ApiError("CLUSTERTAB_URL begins with https://, or the key would be sent for all to read.")
        if not key.isascii() or not key.isprintable() or not key.strip():
            raise ApiError("Set CLUSTERTAB_KEY to a key of your tenant: Settings, API keys.")
        self._base, self._key = url.rstrip("/") + "/api/v1/", key.strip()
        self._opener = urllib.request.build_opener(_NoRedirect)

    def get(self, *path: str, **query: object) -> dict[str, Any]:
        """Raises ApiError. A value of None is left out; a list is sent as several."""
        values = {name.rstrip("_"): value for name, value in query.items() if value not in (None, "", [])}
        address = "/".join(urllib.parse.quote(part, safe="") for part in path)
        if values:
            address += "?" + urllib.parse.urlencode(values, doseq=True)
        return self._ask(address)

    def all(self, *path: str) -> list[dict[str, Any]]:
        """A list to its end."""
        rows: list[dict[str, Any]] = []
        cursor = None
        while True:
            page = self.get(*path, limit=200, cursor=cursor)
            rows += page["data"]
            cursor = page["next"]
            if cursor is None:
                return rows

    def quote(self, job: Mapping[str, object]) -> dict[str, Any]:
        """What such a job would cost; nothing is kept. Raises ApiError."""
        return self._ask(
            "quotes", json.dumps({name: value for name, value in job.items() if value is not None})
        )

    def _ask(self, address: str, body: str | None = None) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {self._key}", "Content-Type": "application/json"}
        data = None if body is None else body.encode()
        request = urllib.request.Request(self._base + address, data, headers)  # noqa: S310 - the scheme is checked
        try:
            with self._opener.open(request, timeout=TIMEOUT) as answer:
                text = answer.read(LARGEST)
        except urllib.error.HTTPError as error:
            with error:
                raise ApiError(_sentence(error.code, error.read(1 << 20))) from None
        except (OSError, HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            raise ApiError(f"ClusterTab does not answer: {reason}.") from None
        try:
            value = json.loads(text)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise ApiError("What answers at CLUSTERTAB_URL is not ClusterTab.")
        return value


def _sentence(status: int, text: bytes) -> str:
    """Of problem details, with the places that are wrong."""
    try:
        problem = json.loads(text)
        detail = str(problem["detail"])
        places = [f"{error['pointer']}: {error['detail']}" for error in problem.get("errors", [])]
    except (ValueError, KeyError, TypeError):
        return f"ClusterTab answers {status}. Is CLUSTERTAB_URL its address?"
    hints = {401: "Set CLUSTERTAB_KEY to a key that is good.", 404: "It is not there, or not your tenant's."}
    more = [place for place in places if detail not in place]
    return " ".join([detail, *more, *([hints[status]] if status in hints else [])])
