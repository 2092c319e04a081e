"""What a tenant may hold at once: so many GPUs, so many running jobs; and what was read back of each account."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db import models
from django.db.models import Q

from billing.models.quota_terms import LONGEST_NAME, LONGEST_TEXT
from clusters.models import Account
from portal.core.audit import track
from portal.core.tenants.models import Project, Tenant


class ConcurrencyLimitQuerySet(models.QuerySet["ConcurrencyLimit"]):
    def in_force(self) -> ConcurrencyLimitQuerySet:
        """Those that were not ended."""
        return self.filter(ended_at=None)


@track()
class ConcurrencyLimit(models.Model):
    """So many GPUs and jobs that each account in its scope may hold at once. An ended one stays; its name is free."""

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="concurrency_limits")
    name = models.SlugField(max_length=LONGEST_NAME, help_text="Unique among the tenant's limits.")
    project = models.ForeignKey(
        Project, on_delete=models.PROTECT, null=True, blank=True, related_name="+", help_text="Empty: all."
    )
    account = models.CharField(max_length=LONGEST_TEXT, blank=True, help_text="Empty: all.")
    cluster = models.CharField(max_length=LONGEST_TEXT, blank=True, help_text="Empty: all.")
    gpu_model = models.CharField(max_length=LONGEST_TEXT, blank=True, help_text="Of the GPUs; empty: any.")
    gpus = models.PositiveIntegerField(null=True, blank=True, help_text="Empty: no limit.")
    jobs = models.PositiveIntegerField(null=True, blank=True, help_text="That run; empty: no limit.")
    created_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)

    objects: ClassVar = ConcurrencyLimitQuerySet.as_manager()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["tenant", "name"], condition=Q(ended_at=None), name="limit_is_named_once_per_tenant"
            ),
            models.CheckConstraint(
                condition=(Q(gpus__gt=0) | Q(gpus=None)) & (Q(jobs__gt=0) | Q(jobs=None)),
                name="limit_leaves_something",
            ),
            models.CheckConstraint(condition=~Q(gpus=None, jobs=None), name="limit_is_of_something"),
            models.CheckConstraint(
                condition=Q(gpu_model="") | ~Q(gpus=None), name="limit_of_a_model_is_of_gpus"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} of {self.tenant}"


class LimitState(models.TextChoices):
    """What is wanted of an account, and what was read back from its scheduler."""

    REQUESTED = "requested", "To be set"
    SET = "set", "Set"
    LIFTING = "lifting", "To be lifted"


@track(exclude=["tries", "next_at", "error", "note", "checked_at"])
class LimitedAccount(models.Model):
    """What all limits demand together of one account, from when to when: the smallest of each."""

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+", db_index=False)
    account = models.ForeignKey(Account, on_delete=models.PROTECT, related_name="+")
    gpus = models.JSONField(help_text='By GPU model, "" being any.')
    jobs = models.PositiveIntegerField(null=True)
    state = models.CharField(max_length=9, choices=LimitState.choices, default=LimitState.REQUESTED)
    began_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    checked_at = models.DateTimeField(null=True, help_text="When it was last read back.")
    note = models.TextField(blank=True, help_text="What the scheduler does not do, or has otherwise.")
    error = models.TextField(blank=True, help_text="Why it could not be set yet; it is tried again.")
    tries = models.PositiveIntegerField(default=0)
    next_at = models.DateTimeField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["account"], condition=Q(ended_at=None), name="account_has_its_limits_once"
            ),
            models.CheckConstraint(condition=Q(state__in=LimitState.values), name="limit_state_is_known"),
        ]
        indexes: ClassVar = [
            models.Index(fields=["next_at"], condition=Q(ended_at=None), name="limited_accounts_to_look_at"),
            models.Index(fields=["tenant"], condition=Q(ended_at=None), name="limited_accounts_of_tenant"),
        ]

    def __str__(self) -> str:
        return f"{self.account}: {self.get_state_display()}"

    @property
    def demand(self) -> dict[str, Any]:
        """What it is compared by."""
        return {"gpus": self.gpus, "jobs": self.jobs}
