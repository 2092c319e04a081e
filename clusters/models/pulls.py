"""Syncs of a source, and the rows that they rejected."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.utils.translation import gettext

from clusters.connectors.row_messages import SENTENCES
from clusters.models.cluster import Cluster
from portal.errors import compose


class Pull(models.Model):
    """One pull over a source: what it read and what became of it."""

    class Outcome(models.TextChoices):
        RUNNING = "running", "Running"
        DONE = "done", "Done"
        FAILED = "failed", "Failed"

    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="pulls")
    source = models.TextField(help_text="The file's name, or the endpoint.")
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    outcome = models.CharField(max_length=10, choices=Outcome.choices, default=Outcome.RUNNING)
    error = models.TextField(blank=True)
    since = models.DateTimeField(null=True, help_text="The window that was read; empty for files.")
    until = models.DateTimeField(null=True)
    as_of = models.DateTimeField(null=True, help_text="The moment up to which the source had looked.")
    read = models.BigIntegerField(default=0)
    new = models.BigIntegerField(default=0)
    unchanged = models.BigIntegerField(default=0)
    revised = models.BigIntegerField(default=0)
    quarantined = models.BigIntegerField(default=0)
    steps = models.BigIntegerField(default=0)
    busy_read = models.BigIntegerField(default=0, help_text="Hours of runs that telemetry told of.")
    busy_changed = models.BigIntegerField(default=0, help_text="Those that were new or said something else.")
    notes = models.TextField(blank=True, help_text="What was noticed and does no harm, a sentence a line.")

    class Meta:
        indexes: ClassVar = [
            models.Index(fields=["cluster", "-started_at", "-id"], name="pulls_of_cluster"),
            models.Index(fields=["cluster"], condition=models.Q(outcome="running"), name="pulls_under_way"),
        ]

    def __str__(self) -> str:
        return f"{self.cluster.name}: {self.source}"


class Quarantined(models.Model):
    """A row that could not be true or read: kept with its reason, once however often it comes."""

    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="quarantine")
    code = models.CharField(max_length=60)
    values = models.JSONField(default=dict, help_text="What the sentence of the code is filled in with.")
    raw = models.TextField(help_text="As it came; bytes that are not UTF-8 as \\xNN.")
    digest = models.CharField(max_length=64, help_text="SHA-256 of raw.")
    source_key = models.TextField(blank=True)
    source = models.TextField(blank=True)
    line = models.BigIntegerField(null=True)
    first_seen = models.DateTimeField()
    last_seen = models.DateTimeField()
    resolved_at = models.DateTimeField(
        null=True, blank=True, help_text="When a good row of the same key came, or an operator settled it."
    )
    resolution = models.TextField(blank=True)

    class Meta:
        verbose_name_plural = "quarantined rows"
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["cluster", "digest"], name="quarantine_keeps_a_row_once")
        ]

    def __str__(self) -> str:
        return f"{self.cluster.name}: {self.code}"

    @property
    def reason(self) -> str:
        """The sentence of its code, in the language of whoever reads it."""
        return compose(SENTENCES, self.code, self.values, gettext)
