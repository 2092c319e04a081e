"""The history: one row for each row that a statement changed."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any, ClassVar

from django.contrib.postgres.indexes import BrinIndex
from django.db import models
from django.db.models import Model

EXACT_INTEGERS = 2**53  # above, readers of JSON may round


class Exact(json.JSONDecoder):
    """Numbers as the columns had them: an amount is never a float."""

    def __init__(self) -> None:
        super().__init__(parse_float=Decimal)


def as_exact_json(value: Any) -> Any:
    """A value of `Exact` for programs: amounts, and what is too large for some readers of JSON, as text in full."""
    if isinstance(value, dict):
        return {name: as_exact_json(one) for name, one in value.items()}
    if isinstance(value, list):
        return [as_exact_json(one) for one in value]
    if isinstance(value, Decimal):
        return f"{value:f}"
    return str(value) if isinstance(value, int) and abs(value) >= EXACT_INTEGERS else value


class Operation(models.TextChoices):
    INSERT = "insert", "new"
    UPDATE = "update", "changed"
    DELETE = "delete", "gone"


class AuditEntryQuerySet(models.QuerySet["AuditEntry"]):
    def of(self, row: Model) -> AuditEntryQuerySet:
        """The history of one row, the oldest entry first."""
        return self.filter(table=row._meta.db_table, key=str(row.pk)).order_by("pk")

    def of_table(self, model: type[Model]) -> AuditEntryQuerySet:
        """The history of all rows of a model, the oldest entry first."""
        return self.filter(table=model._meta.db_table).order_by("pk")


class AuditEntry(models.Model):
    """What a statement did to one row. Written by the database alone, and never changed but to erase people."""

    transaction = models.BigIntegerField(
        help_text="Drawn with its first change; its number in the order of commits is its commit's."
    )
    at = models.DateTimeField(help_text="When the transaction began.")
    table = models.TextField()
    key = models.TextField(help_text="The row's primary key.")
    operation = models.CharField(max_length=6, choices=Operation.choices)
    before = models.JSONField(
        null=True, decoder=Exact, help_text="Columns that changed, or all of a row that is gone."
    )
    after = models.JSONField(null=True, decoder=Exact, help_text="Columns that changed, or all of a new row.")
    tenant_id = models.BigIntegerField(
        null=True, help_text="Whose row it is; not checked, since tenants may go."
    )
    who = models.TextField(blank=True, help_text="Empty: nobody was named.")
    through = models.TextField(blank=True, help_text="The page, command, file, API key or task.")
    why = models.TextField(blank=True)

    objects = AuditEntryQuerySet.as_manager()

    class Meta:
        verbose_name = "change"
        verbose_name_plural = "changes"
        db_table = "audit_entry"
        indexes: ClassVar = [
            models.Index(fields=["table", "key"], name="audit_entry_of_row"),
            models.Index(
                fields=["tenant_id", "id"],
                condition=models.Q(tenant_id__isnull=False),
                name="audit_entry_of_tenant",
            ),
            models.Index(fields=["who", "id"], name="audit_entry_of_author"),  # who take their data along
            BrinIndex(fields=["transaction"], autosummarize=True, name="audit_entry_of_transaction"),
        ]

    def __str__(self) -> str:
        return f"{self.operation} {self.table} {self.key}"

    @property
    def changes(self) -> list[tuple[str, Any, Any]]:
        """(column, before, after) of each column; None where the row was not there."""
        before, after = self.before or {}, self.after or {}
        return [(name, before.get(name), after.get(name)) for name in sorted({*before, *after})]


class AuditCommit(models.Model):
    """The place of each transaction with history in the order of commits: a reader that has seen number n,
    and asks for what is above, misses nothing. The database gives the number as the last act of a transaction."""

    transaction = models.BigIntegerField(primary_key=True)
    number = models.BigIntegerField(null=True, unique=True)

    class Meta:
        db_table = "audit_commit"

    def __str__(self) -> str:
        return f"{self.number}"
