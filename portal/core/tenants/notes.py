"""Notes of operators on a tenant: written and removed. The tenant never sees them."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction

from portal.core.tenants.access import Right, rights_of
from portal.core.tenants.models import Tenant, TenantNote, User
from portal.core.tenants.models.notes import LONGEST_NOTE
from portal.core.tenants.team import TeamError


@transaction.atomic
def add_note(*, tenant: Tenant, text: str, author: User, moment: datetime) -> TenantNote:
    """Keep the text as the author's note; each call adds one. Raises TeamError for an empty or too long text."""
    text = text.replace("\r\n", "\n").replace("\0", "").strip()
    if not text:
        raise TeamError("empty-note")
    if len(text) > LONGEST_NOTE:
        raise TeamError("long-note", most=LONGEST_NOTE, length=len(text))
    return TenantNote.objects.create(tenant=tenant, author=author.email, text=text, created_at=moment)


@transaction.atomic
def remove_note(*, note: TenantNote, by: User) -> None:
    """Take it off the page; the operators' history keeps it. Raises TeamError unless it is theirs, or they are an
    admin."""
    if not may_remove(note, by):
        raise TeamError("not-your-note", author=note.author)
    note.delete()


def may_remove(note: TenantNote, person: User) -> bool:
    """Its author, and admins."""
    return note.author == person.email or Right.SETTINGS in rights_of(person)
