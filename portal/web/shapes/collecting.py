"""Who owes what since when, what comes next, and what waits for a person."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from portal.web.badges import Badge
    from portal.web.shapes.closing import CloseTile


@dataclass(frozen=True, kw_only=True)
class LateRow:
    slug: str
    tenant: str
    number: str
    due: str  # amount
    since: str  # "15 Apr 2026"
    days: str  # "12 days"
    badge: Badge
    next: str  # "Reminder 2", "" where nothing is left to do
    when: str  # "25 Apr 2026"
    note: str  # why it rests, "" where it does not
    paused: bool  # it can be resumed: this invoice
    all_paused: bool  # and this: all of the tenant's


@dataclass(frozen=True, kw_only=True)
class LookRow:
    what: str
    sentence: str
    slug: str
    number: str
    href: str  # where it is dealt with, "" where that is not here
    act: str = ""  # "refund" to the card, "transfer" to record; "" for neither


@dataclass(frozen=True, kw_only=True)
class CollectingPage:
    tiles: tuple[CloseTile, ...]
    rows: tuple[LateRow, ...]
    more: str
    first: bool  # this is the first part of the list
    looks: tuple[LookRow, ...]
    notice: str  # that notices are only kept; "" where they are sent
    notices: str  # where they can be read
