"""The state of the sandbox: its objects, what is due later, what was announced. All of it is plain JSON."""

from __future__ import annotations

import copy
import os
import secrets
import string
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import msgspec

from portal.dev.stripe_sandbox import shapes
from portal.dev.stripe_sandbox.clock import Clock
from portal.dev.stripe_sandbox.errors import Json, missing

FILE = "stripe-sandbox.json"
ACCOUNT = "acct_1ClusterTabSandbox"
_LETTERS = string.ascii_letters + string.digits

PREFIXES = {
    "cus": "customer",
    "pm": "payment_method",
    "seti": "setup_intent",
    "pi": "payment_intent",
    "ch": "charge",
    "py": "charge",
    "txn": "balance_transaction",
    "cs": "checkout.session",
    "re": "refund",
    "pyr": "refund",
    "du": "dispute",
    "evt": "event",
    "we": "webhook_endpoint",
    "po": "payout",
}


@dataclass
class Data:
    # kind → id → object, in order of creation
    objects: dict[str, dict[str, Json]] = field(default_factory=dict)
    hidden: dict[str, Json] = field(default_factory=dict)  # id → what Stripe knows of it and does not show
    agenda: list[Json] = field(default_factory=list)  # {at, what, id}: happens when the clock gets there
    answers: dict[str, Json] = field(default_factory=dict)  # idempotency key → what was asked and answered
    deliveries: list[Json] = field(default_factory=list)  # an event on its way to an endpoint
    offset: int = 0  # of the clock

    def as_json(self) -> Json:
        return {one.name: getattr(self, one.name) for one in fields(self)}

    def write(self, home: Path) -> None:
        """Whole or as it was before, and on the disk when this returns; readable by its owner only."""
        target = home / FILE
        temp_path = target.with_suffix(".new")
        descriptor = os.open(temp_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.encode(self.as_json()))
            file.flush()
            os.fsync(file.fileno())
        temp_path.replace(target)

    @classmethod
    def read(cls, home: Path) -> Data | None:
        """What was written last, None if nothing was."""
        target = home / FILE
        if not target.exists():
            return None
        try:
            payload = msgspec.json.decode(target.read_bytes())
            return cls(**{one.name: payload[one.name] for one in fields(cls)})
        except (msgspec.DecodeError, KeyError, TypeError):
            raise SystemExit(f"{target} is not a state of the sandbox: move it away to start anew.") from None


class State:
    """One Stripe account. Whoever reads or changes it holds `lock`."""

    def __init__(self, *, clock: Clock, live: bool = False) -> None:
        self.clock = clock
        self.live = live
        self.base = ""  # where the hosted pages are
        self.data = Data()
        self.lock = threading.RLock()
        self.request: Json | None = None  # the request that is being answered: id and idempotency key
        self.changed = threading.Condition(self.lock)  # told when there is something to deliver

    def now(self) -> int:
        return self.clock.now()

    def new_id(self, prefix: str) -> str:
        return f"{prefix}_{''.join(secrets.choice(_LETTERS) for _ in range(24))}"

    def new(self, kind: str, prefix: str, **fields: Any) -> Json:
        """An object of now with all that its kind has; what is not given is null."""
        resource = {"id": self.new_id(prefix), **shapes.blank(kind), "created": self.now(), **fields}
        if "livemode" in shapes.CLASSES[kind].__annotations__:
            resource["livemode"] = self.live
        self.data.objects.setdefault(kind, {})[resource["id"]] = resource
        return resource

    def all(self, kind: str) -> list[Json]:
        return list(self.data.objects.get(kind, {}).values())

    def find(self, kind: str, identifier: str | None) -> Json | None:
        return self.data.objects.get(kind, {}).get(identifier or "")

    def get(self, kind: str, identifier: str | None) -> Json:
        """One that is known to be there, because another object names it."""
        resource = self.find(kind, identifier)
        if resource is None:
            raise LookupError(f"The sandbox lost its {kind} {identifier}.")
        return resource

    def named(self, kind: str, identifier: str, *, param: str, in_path: bool = False) -> Json:
        """One that a request names; refused as Stripe does where there is none."""
        resource = self.find(kind, identifier)
        if resource is None or (resource.get("deleted") and not in_path):
            raise missing(kind, identifier, param=param, status=404 if in_path else 400)
        return resource

    def anywhere(self, identifier: str) -> Json | None:
        """An object by its id alone."""
        return self.find(PREFIXES.get(identifier.split("_", 1)[0], ""), identifier)

    def hidden(self, identifier: str) -> Json:
        return self.data.hidden.setdefault(identifier, {})

    def later(self, at: int, what: str, identifier: str = "") -> None:
        self.data.agenda.append({"at": at, "what": what, "id": identifier})

    def never(self, what: str, identifier: str) -> None:
        """What was planned for that object does not happen any more."""
        self.data.agenda[:] = [
            due for due in self.data.agenda if (due["what"], due["id"]) != (what, identifier)
        ]

    def emit(self, kind: str, about: Json, previous: Json | None = None) -> Json:
        """Write an event with the object as it is now, and one delivery for each endpoint that wants it."""
        data: Json = {"object": copy.deepcopy(about)}
        if previous is not None:
            data["previous_attributes"] = previous
        event = self.new(
            "event",
            "evt",
            type=kind,
            data=data,
            api_version=shapes.VERSION,
            pending_webhooks=0,
            request=dict(self.request or {"id": None, "idempotency_key": None}),
        )
        for endpoint in self.all("webhook_endpoint"):
            if endpoint["status"] != "enabled" or not {"*", kind} & set(endpoint["enabled_events"]):
                continue
            self.data.deliveries.append(
                {
                    "event": event["id"],
                    "type": kind,
                    "endpoint": endpoint["id"],
                    "state": "pending",
                    "attempts": 0,
                }
                | {"at": self.now(), "copies": 1}
            )
            event["pending_webhooks"] += 1
        self.changed.notify_all()
        return event

    @contextmanager
    def updating(self, about: Json, *events: str) -> Iterator[Json]:
        """Change the object inside and announce it, by each of the events, with what was different before.

        Refused inside, it is as it was.
        """
        before = copy.deepcopy(about)
        try:
            yield about
        except BaseException:
            about.clear()
            about |= before
            raise
        previous = {name: before[name] for name in about if name in before and before[name] != about[name]}
        for event in events if previous else ():
            self.emit(event, about, previous)
