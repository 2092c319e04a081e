"""What accounts used while no tenant owned them, and the spans that an assignment has to fill."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime

from clusters import usage
from clusters.usage import Unclaimed
from portal.core.tenants.models import Ownership

Span = tuple[datetime | None, datetime | None]
"""[since, until); None reaches to the beginning or for ever."""


@dataclass(frozen=True, slots=True)
class Unassigned:
    """An account's unassigned usage, and the spans without an owner that its jobs touch."""

    use: Unclaimed
    gaps: list[Span]


def unassigned(*, begun: datetime | None = None) -> list[Unassigned]:
    """All accounts that used something while nobody owned them, in jobs begun then or later. Two queries."""
    owned: dict[int, list[tuple[int | None, int | None]]] = defaultdict(list)
    for account, since, until in Ownership.objects.order_by("since", "pk").values_list(
        "account", "since", "until"
    ):
        owned[account].append((_second(since), _second(until)))
    claims = [(account, since, until) for account, spans in owned.items() for since, until in spans]
    return [
        Unassigned(use, _gaps(owned[use.account_id], use))
        for use in usage.unclaimed(claims, begun=_second(begun) or 0)
    ]


def _gaps(spans: list[tuple[int | None, int | None]], use: Unclaimed) -> list[Span]:
    gaps: list[tuple[int | None, int | None]] = []
    free: int | None = None  # where the present gap began
    closed = False  # an ownership without an end leaves no gap behind it
    for since, until in sorted(spans, key=lambda span: span[0] or 0):
        if since is not None and since != free:
            gaps.append((free, since))
        free, closed = until, until is None
    if not closed:
        gaps.append((free, None))
    first, last = use.first.timestamp(), use.last.timestamp()
    return [
        (_moment(since), _moment(until))
        for since, until in gaps
        if (since is None or since < last) and (until is None or until > first)
    ]


def _second(moment: datetime | None) -> int | None:
    return None if moment is None else int(moment.timestamp())


def _moment(second: int | None) -> datetime | None:
    return None if second is None else datetime.fromtimestamp(second, UTC)
