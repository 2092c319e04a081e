"""Requests as they come in, what is kept of them, and the answers that go out."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from portal.dev.stripe_sandbox.errors import Json
from portal.dev.stripe_sandbox.state import State


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


@dataclass(frozen=True)
class Call:
    state: State
    params: Json  # in their types, without `expand`
    ids: tuple[str, ...]  # the objects of the path

    def fields(self, *names: str) -> Json:
        """Those of the parameters that the request has, for fields that are called the same."""
        return {name: unset(self.params[name]) for name in names if name in self.params}

    def get(self, name: str, default: Any = None) -> Any:
        return unset(self.params.get(name, default))


Handler = Callable[[Call], Json]


def unset(value: Any) -> Any:
    """An empty text is how a form says null."""
    return None if value == "" else value


def merged(metadata: Json | None, update: Json | str | None) -> Json:
    """Metadata after an update: names with an empty value go away, an empty text takes all away."""
    if update == "":
        return {}
    both = {**(metadata or {}), **(update if isinstance(update, dict) else {})}
    return {name: text for name, text in both.items() if text != ""}
