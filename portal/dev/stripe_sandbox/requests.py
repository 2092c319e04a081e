"""Requests as they come in, what is kept of them, and the answers that go out."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from portal.dev.stripe_sandbox.errors import Json


@dataclass(frozen=True)
class Incoming:
    """One HTTP request to the API, as it stands on the wire."""

    method: str
    path: str
    form: str  # the query of a GET or DELETE, the body of a POST
    headers: dict[str, str]  # names in lower case


@dataclass
class Request:
    """What is kept of a request: all but the secret."""

    id: str  # req_…
    method: str
    path: str
    params: Json  # nested, as texts
    key: str | None  # the idempotency key
    headers: dict[str, str]  # without authorization
    at: int  # by the sandbox's clock
    status: int | None = None  # None while it is being answered, or if the connection was cut
    fault: str | None = None  # the one that was planned for it
    replayed: bool = False

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


@dataclass(frozen=True)
class Violation:
    """A rule of the protocol that a request broke."""

    rule: str
    request: Request
    detail: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.request}: {self.detail}"


@dataclass
class Answer:
    status: int
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)
    cut: bool = False  # the connection ends without an answer
    content_type: str = "application/json"

    @classmethod
    def of(cls, status: int, payload: Json) -> Answer:
        return cls(status, json.dumps(payload, indent=2).encode())


def without_secret(headers: dict[str, str]) -> dict[str, str]:
    return {name: text for name, text in headers.items() if name != "authorization"}
