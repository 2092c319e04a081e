"""Faults that a test plans for the next requests that match."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from portal.dev.stripe_sandbox.errors import Json
from portal.dev.stripe_sandbox.requests import Answer, Request

Kind = Literal[
    "drop_answer", "cut_before", "server_error", "rate_limited", "lock_timeout", "unauthorized", "forbidden",
    "bad_gateway", "truncated", "delay",
]  # fmt: skip
EVERY = 1_000_000_000  # times


@dataclass
class Fault:
    """`on` is METHOD and path, with * for anything: `POST /v1/payment_intents*`, `GET *`, `*`."""

    kind: Kind
    on: str
    times: int
    skip: int = 0  # matching requests that go well before the first fault
    effect: bool = False  # whether the request is carried out all the same
    stored: bool = False  # whether the idempotency key replays the fault
    seconds: float = 0

    def matches(self, request: Request) -> bool:
        return self.on == "*" or fnmatchcase(f"{request.method} {request.path}", self.on)


class Faults:
    """Planned in order; each matching request takes one time off the first fault that is left."""

    def __init__(self) -> None:
        self.planned: list[Fault] = []
        self._lock = threading.Lock()

    def _plan(self, fault: Fault) -> Fault:
        with self._lock:
            self.planned.append(fault)
        return fault

    def drop_answer(self, on: str = "POST *", *, times: int = 1, skip: int = 0) -> Fault:
        """Carried out and stored, but the connection ends before the answer."""
        return self._plan(Fault("drop_answer", on, times, skip, effect=True))

    def cut_before(self, on: str = "POST *", *, times: int = 1, skip: int = 0) -> Fault:
        """The connection ends and nothing happened."""
        return self._plan(Fault("cut_before", on, times, skip))

    def server_error(
        self, on: str = "POST *", *, times: int = 1, skip: int = 0, effect: bool = False, stored: bool = True
    ) -> Fault:
        """500, replayed for the same key if `stored`; carried out behind it if `effect`."""
        return self._plan(Fault("server_error", on, times, skip, effect, stored))

    def rate_limited(self, on: str = "*", *, times: int = 1, skip: int = 0) -> Fault:
        """429, nothing happened and nothing is stored."""
        return self._plan(Fault("rate_limited", on, times, skip))

    def lock_timeout(self, on: str = "*", *, times: int = 1, skip: int = 0) -> Fault:
        """409, nothing happened and nothing is stored."""
        return self._plan(Fault("lock_timeout", on, times, skip))

    def unauthorized(self, on: str = "*", *, times: int = EVERY, skip: int = 0) -> Fault:
        """401, as for a key that was rolled; until it is lifted."""
        return self._plan(Fault("unauthorized", on, times, skip))

    def forbidden(self, on: str = "*", *, times: int = EVERY, skip: int = 0) -> Fault:
        """403, as for a restricted key without the right; until it is lifted."""
        return self._plan(Fault("forbidden", on, times, skip))

    def bad_gateway(
        self, on: str = "POST *", *, times: int = 1, skip: int = 0, effect: bool = False
    ) -> Fault:
        """502 with a page of HTML; carried out behind it if `effect`."""
        return self._plan(Fault("bad_gateway", on, times, skip, effect))

    def truncated(self, on: str = "POST *", *, times: int = 1, skip: int = 0) -> Fault:
        """Carried out, answered 200 with half of the JSON."""
        return self._plan(Fault("truncated", on, times, skip, effect=True))

    def delay(self, seconds: float, on: str = "POST *", *, times: int = 1, skip: int = 0) -> Fault:
        """Real seconds that pass before it is carried out; its key is in use meanwhile."""
        return self._plan(Fault("delay", on, times, skip, effect=True, seconds=seconds))

    def lift(self, fault: Fault | None = None) -> None:
        """Take back one fault, or all."""
        with self._lock:
            self.planned = [one for one in self.planned if fault is not None and one is not fault]

    def take(self, request: Request) -> Fault | None:
        """The fault for this request, if one is planned."""
        with self._lock:
            for fault in list(self.planned):
                if not fault.matches(request):
                    continue
                if fault.skip > 0:
                    fault.skip -= 1
                    continue
                fault.times -= 1
                if fault.times <= 0:
                    self.planned.remove(fault)
                return fault
        return None


def pause(fault: Fault | None) -> None:
    if fault is not None and fault.seconds:
        time.sleep(fault.seconds)


def _error(status: int, kind: str, message: str, code: str | None = None) -> Answer:
    error: Json = {"type": kind, "message": message}
    if code:
        error["code"] = code
    return Answer.of(status, {"error": error})


def answer(fault: Fault) -> Answer:
    """What the fault answers by itself."""
    answers = {
        "server_error": _error(500, "api_error", "An unknown error occurred."),
        "rate_limited": _error(429, "invalid_request_error", "Too many requests hit the API.", "rate_limit"),
        "lock_timeout": _error(
            409,
            "invalid_request_error",
            "This object cannot be accessed right now because another request is accessing it.",
            "lock_timeout",
        ),
        "unauthorized": _error(401, "invalid_request_error", "Invalid API Key provided."),
        "forbidden": _error(403, "invalid_request_error", "The key does not have the required permissions."),
        "bad_gateway": Answer(
            502, b"<html><head><title>502 Bad Gateway</title></head></html>", content_type="text/html"
        ),
    }
    return answers.get(fault.kind, Answer(0, b"", cut=True))
