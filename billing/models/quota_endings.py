"""Running jobs that a quota has ended after a grace: announced, warned of, done; one row of an account each time."""

from __future__ import annotations

from typing import ClassVar

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q

from billing.models.quota_blocks import QUOTA_SOURCE
from billing.models.quotas import Quota
from clusters.models import Account
from portal.core.audit import track
from portal.core.tenants.models import Tenant


class QuotaEndingState(models.TextChoices):
    """How far it is."""

    ANNOUNCED = "announced", "Announced"
    DONE = "done", "Jobs were ended"
    STOPPED = "stopped", "Stopped: nothing was ended"
    WATCHED = "watched", "Would be ended"


@track(exclude=["tries", "next_at", "error"])  # of the error, operators read the last one
class QuotaEnding(models.Model):
    """That a quota has the running jobs of one account ended at a moment, unless it holds no more by then.

    Those that ran when it was announced: what starts later is announced by a row of its own.
    """

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+", db_index=False)
    quota = models.ForeignKey(Quota, on_delete=models.PROTECT, related_name="endings", db_index=False)
    account = models.ForeignKey(Account, on_delete=models.PROTECT, related_name="+")
    state = models.CharField(max_length=9, choices=QuotaEndingState.choices)
    began_at = models.DateTimeField(help_text="When it was announced.")
    due_at = models.DateTimeField(help_text="When the grace is over.")
    warned_at = models.DateTimeField(null=True, help_text="When it was announced again, shortly before.")
    drained_at = models.DateTimeField(
        null=True, help_text="When the queues of its account were told to end what runs."
    )
    ends_older = models.BooleanField(
        default=False, help_text="Also jobs from before the quota, as it said when this was announced."
    )
    jobs = ArrayField(models.TextField(), default=list, help_text="Those that were ended, by their numbers.")
    closed_at = models.DateTimeField(null=True, help_text="When nothing demanded it any more.")
    error = models.TextField(blank=True, help_text="Why nothing could be ended yet; it is tried again.")
    tries = models.PositiveIntegerField(default=0)
    next_at = models.DateTimeField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["quota", "account"],
                condition=Q(closed_at=None),
                name="quota_has_jobs_of_an_account_ended_once",
            ),
            models.CheckConstraint(
                condition=Q(state__in=QuotaEndingState.values), name="quota_ending_state_is_known"
            ),
            models.CheckConstraint(condition=Q(due_at__gt=F("began_at")), name="quota_ending_has_a_grace"),
        ]
        indexes: ClassVar = [
            models.Index(fields=["tenant", "began_at"], name="quota_endings_of_tenant"),
            models.Index(fields=["next_at"], condition=Q(closed_at=None), name="quota_endings_to_look_at"),
        ]

    def __str__(self) -> str:
        return f"{self.account}: {self.get_state_display()}"

    @property
    def source(self) -> str:
        """Who ends the jobs, as the scheduler's history has it: the quota, by this announcement and no other."""
        return f"{QUOTA_SOURCE}{self.quota_id}:{self.pk}"

    @property
    def drain_source(self) -> str:
        """Of the reason beneath the account's block that has its queues end what runs."""
        return f"{DRAIN_SOURCE}{self.pk}"


DRAIN_SOURCE = "quota-ending:"
