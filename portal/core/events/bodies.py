"""An event as it is sent: what happened to which object, thin, so that whoever wants the rest fetches the object."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from portal.core import identifiers
from portal.core.events.models import Event

OBJECTS = {
    "inv": "invoice",
    "wal": "wallet",
    "close": "close",
    "clu": "cluster",
    "quo": "quota",
    "wst": "waste_finding",
}
"""What the kinds of ids are called."""


def body_of(event: Event) -> dict[str, Any]:
    """The event as JSON, the same in the API and in webhooks. It has its place, and its tenant is loaded."""
    return {
        "id": id_of(event),
        "type": event.type,
        "timestamp": timestamp(event.at),
        "sequence": event.sequence,
        "data": {
            "id": identifiers.write(event.kind, event.key),
            "object": OBJECTS[event.kind],
            "state": event.state,
            "tenant": event.tenant.slug if event.tenant else None,
        },
    }


def id_of(event: Event) -> str:
    """Under which it is known wherever it is sent: readers drop what they have under it."""
    return identifiers.write("evt", event.number or 0)


def timestamp(moment: datetime) -> str:
    """An instant of RFC 3339 in UTC."""
    return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
