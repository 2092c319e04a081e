"""The close of a month, as the operator sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from django.forms import Form

    from portal.web.badges import Badge
    from portal.web.form_input import Option
    from portal.web.invoice_document import InvoicePage


@dataclass(frozen=True, kw_only=True)
class CloseTile:
    """How many tenants came out so; `href` shows them alone."""

    label: str
    value: str
    note: str  # what they come to, or what it means
    href: str
    current: bool


@dataclass(frozen=True, kw_only=True)
class InTheWay:
    """One thing that blocks, with what to do about it."""

    title: str
    remedy: str
    tenants: str
    href: str
    entry: str = ""  # where what is missing is entered; "" where the remedy says it all


@dataclass(frozen=True, kw_only=True)
class PendingRow:
    """An invoice that waits, or was decided and is not issued yet."""

    period: int  # by which it is decided
    slug: str
    tenant: str
    month: str
    total: str
    lines: str
    reason: str
    since: str
    badge: Badge
    decision: str  # who decided, when and why; "" while it waits
    seen: str  # the figures, as they come back with the decision: minor units
    seen_lines: str
    draft: str  # where it is looked at as it will be


@dataclass(frozen=True, kw_only=True)
class IssueConfirmation:
    """What is asked before invoices are issued."""

    sentence: str  # "Issue the invoices of March 2026 to 2 tenants: $14.25?"
    button: str
    why: str  # the reason for which usage may be missing, as it was given; "" for none


@dataclass(frozen=True, kw_only=True)
class CloseRow:
    """What became of one tenant."""

    slug: str
    tenant: str
    badge: Badge
    total: str
    number: str  # "" where there is no invoice
    change: str  # "+$6.00 (+300 %)"; "" where there was nothing before
    lines: tuple[str, ...]  # that differ most
    sentences: tuple[str, ...]
    draft: str = ""  # where its documents are looked at before they are issued; "" where there are none


@dataclass(frozen=True, kw_only=True)
class Draft:
    """One document that a close would issue."""

    page: InvoicePage
    pdf: str


@dataclass(frozen=True, kw_only=True)
class DraftsPage:
    """All that a close would issue to one tenant."""

    tenant: str
    name: str  # March 2026
    back: str
    reason: str  # why it is not issued, what to look at; "" for nothing
    drafts: tuple[Draft, ...]


@dataclass(frozen=True, kw_only=True)
class ClosePage:
    """`refresh` asks for the page again while a worker is at it; "" when nothing moves by itself."""

    month: str  # 2026-03
    name: str  # March 2026
    earlier: str
    later: str
    months: tuple[Option, ...]
    run: str  # what was asked for last, by whom and when; "" for nothing yet
    previewed: bool
    busy: bool
    progress: str
    done: int
    total: int
    error: str
    tiles: tuple[CloseTile, ...]
    blocks: tuple[InTheWay, ...]
    pending: tuple[PendingRow, ...]
    more_pending: str
    rows: tuple[CloseRow, ...]
    shown: str  # which of them; "" for all
    everything: str
    more: str
    first: bool
    href: str
    refresh: str
    schedule: tuple[str, ...]  # what the schedule does of the month next, and of its e-mail; a sentence each
    confirmation: IssueConfirmation | None = None  # while somebody is asked


@dataclass(frozen=True, kw_only=True)
class CloseScheduleRow:
    """On which days the periods of a tenant, or of everyone else, close by themselves."""

    slug: str  # "" for everyone else
    tenant: str
    preview: str
    issue: str
    since: str
    preview_day: str  # as forms send them back
    issue_day: str
    written_since: str


@dataclass(frozen=True, kw_only=True)
class SchedulePage:
    """The schedules and the form that sets one. A preview is confirmed before anything changes."""

    rows: tuple[CloseScheduleRow, ...]
    upcoming: tuple[str, ...]
    is_preview: bool
    removes: bool
    error: str
    form: Form
