"""The API as a script of Ann, Ben, Eve or Op uses it: a key, and requests with it."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from django.test import Client

from portal.api import keys
from portal.api.scopes import OPERATOR_SCOPES, TENANT_SCOPES
from portal.core.tenants.access import allowed_in
from portal.core.tenants.models import Tenant, User

BASE = "/api/v1"


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    raw: bytes

    @property
    def body(self) -> Any:
        return json.loads(self.raw)

    @property
    def problem(self) -> tuple[int, str]:
        """Status and kind of a refusal."""
        assert self.headers["Content-Type"] == "application/problem+json", self.raw[:300]
        assert self.body["status"] == self.status
        return self.status, self.body["type"].removeprefix("urn:clustertab:problem:")


@dataclass(frozen=True)
class Door:
    """Requests with one key; "" sends none."""

    secret: str

    def send(self, method: str, path: str, body: object = None, **headers: str) -> Answer:
        sent = {"Authorization": f"Bearer {self.secret}"} if self.secret else {}
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        content_type = headers.pop("Content-Type", "application/json")
        response = Client(raise_request_exception=False).generic(
            method, BASE + path, data, content_type=content_type, headers=sent | headers
        )
        raw = b"".join(response.streaming_content) if response.streaming else response.content  # type: ignore[attr-defined]
        return Answer(response.status_code, dict(response.headers), raw)

    def get(self, path: str, **headers: str) -> Answer:
        return self.send("GET", path, **headers)

    def post(self, path: str, body: object = None, *, key: str = "", **headers: str) -> Answer:
        return self.send("POST", path, body, **({"Idempotency-Key": key} if key else {}), **headers)

    def writes(self, path: str, body: object = None, *, key: str = "", status: int = 201) -> Any:
        """The body of what a POST is answered with."""
        answer = self.post(path, body, key=key)
        assert answer.status == status, (path, answer.status, answer.raw[:500])
        return answer.body if answer.raw else None

    def reads(self, path: str) -> Any:
        """The body of what is answered with 200."""
        answer = self.get(path)
        assert answer.status == 200, (path, answer.status, answer.raw[:500])
        return answer.body

    def all(self, path: str) -> list[Any]:
        """A list to its end."""
        rows, cursor = [], ""
        while True:
            page = self.reads(path + (f"{'&' if '?' in path else '?'}cursor={cursor}" if cursor else ""))
            rows += page["data"]
            cursor = page["next"]
            if cursor is None:
                return rows


def a_key(person: User, tenant: Tenant | None, *scopes: str, **options: Any) -> keys.NewKey:
    """A key of the person, with all scopes that their role allows where none is named."""
    chosen: Collection[str] = scopes
    if not scopes and tenant is None:
        chosen = OPERATOR_SCOPES
    elif not scopes and tenant is not None:
        rights = allowed_in(tenant, person)
        chosen = [scope for scope, action in TENANT_SCOPES.items() if action in rights]
    moment = options.pop("moment", datetime.now(UTC) - timedelta(seconds=1))
    return keys.make(maker=person, tenant=tenant, name="script", scopes=chosen, moment=moment, **options)


def door(person: User, tenant: Tenant | None, *scopes: str, **options: Any) -> Door:
    return Door(a_key(person, tenant, *scopes, **options).secret)
