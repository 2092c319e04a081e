"""The keys by which the operator signs evidence."""

from __future__ import annotations

from typing import ClassVar

import pgtrigger
from django.db import models
from django.db.models import Q

from portal.core.audit import track
from portal.core.vault import SealedField


@track(exclude=["private"])
class SigningKey(models.Model):
    """An Ed25519 key of the operator. One signs at a time; those before it go on verifying what they signed."""

    name = models.CharField(
        max_length=16, unique=True, help_text="The first digits of the SHA-256 of the public key."
    )
    public = models.CharField(max_length=44, help_text="Base64 of its 32 bytes.")
    private = SealedField(help_text="Base64 of its 32 bytes; gone once another key signs.")
    since = models.DateTimeField()
    until = models.DateTimeField(null=True, help_text="When another key took its place; empty: it signs.")

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["until"],
                condition=Q(until=None),
                nulls_distinct=False,
                name="one_key_signs_at_a_time",
            )
        ]
        triggers: ClassVar = [
            pgtrigger.Protect(name="signing_key_is_kept", operation=pgtrigger.Delete),
            pgtrigger.Protect(
                name="signing_key_is_frozen",
                operation=pgtrigger.UpdateOf("name", "public", "since"),  # type: ignore[no-untyped-call]
            ),
        ]

    def __str__(self) -> str:
        return self.name
