"""What quotas block: which account, from when to when; and the operator's word that lets all go for a time."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import F, Q

from billing.models.quotas import Quota
from clusters.models import Account
from portal.core.audit import track
from portal.core.tenants.models import Tenant


class QuotaBlockState(models.TextChoices):
    """What is wanted of an account, and what was read back from its scheduler."""

    REQUESTED = "requested", "To be blocked"
    BLOCKED = "blocked", "Blocked"
    LIFTING = "lifting", "To be unblocked"
    LIFTED = "lifted", "Unblocked"
    WATCHED = "watched", "Would be blocked"


@track(exclude=["tries", "next_at", "error"], personal=["user"])  # of the error, operators read the last one
class QuotaBlock(models.Model):
    """That a quota demands the block of one account, from when to when; one row each time."""

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+", db_index=False)
    quota = models.ForeignKey(Quota, on_delete=models.PROTECT, related_name="blocks", db_index=False)
    account = models.ForeignKey(Account, on_delete=models.PROTECT, related_name="+")
    submits = models.BooleanField(help_text="It also refuses new jobs.")
    holds = models.BooleanField(
        default=False, help_text="Waiting jobs are held one by one; the account stays as it is."
    )
    holds_instead = models.BooleanField(
        default=False, help_text="It cannot be blocked, as the error says: its waiting jobs are held instead."
    )
    user = models.CharField(max_length=255, blank=True, help_text="Whose jobs are held; empty: all.")
    state = models.CharField(max_length=9, choices=QuotaBlockState.choices)
    why = models.CharField(max_length=200, help_text="As the scheduler's history has it.")
    began_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, help_text="When it was unblocked, or would have been.")
    error = models.TextField(blank=True, help_text="Why it could not be done yet; it is tried again.")
    tries = models.PositiveIntegerField(default=0)
    next_at = models.DateTimeField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["quota", "account"],
                condition=Q(ended_at=None),
                name="quota_demands_a_block_once",
            ),
            models.CheckConstraint(
                condition=Q(state__in=QuotaBlockState.values), name="quota_block_state_is_known"
            ),
        ]
        indexes: ClassVar = [
            models.Index(fields=["tenant", "began_at"], name="quota_blocks_of_tenant"),
            models.Index(fields=["next_at"], condition=Q(ended_at=None), name="quota_blocks_to_look_at"),
        ]

    def __str__(self) -> str:
        return f"{self.account}: {self.get_state_display()}"

    @property
    def source(self) -> str:
        """Of the reason beneath the account's block."""
        return f"{QUOTA_SOURCE}{self.quota_id}"

    @property
    def cause(self) -> str:
        """What demands the block."""
        return f"budget {self.quota.name} of {self.tenant.slug}"


QUOTA_SOURCE = "quota:"


@track()
class QuotaRelease(models.Model):
    """No quota of the tenant blocks anything until then: an operator's word, with a reason."""

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+", db_index=False)
    until = models.DateTimeField()
    reason = models.CharField(max_length=500)
    released_by = models.CharField(max_length=200)
    released_at = models.DateTimeField()

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=Q(until__gt=F("released_at")), name="release_of_quotas_ends_later"
            ),
            models.CheckConstraint(condition=~Q(reason=""), name="release_of_quotas_has_a_reason"),
        ]
        indexes: ClassVar = [models.Index(fields=["tenant", "-until"], name="quota_releases_of_tenant")]

    def __str__(self) -> str:
        return f"{self.tenant} until {self.until:%Y-%m-%d %H:%M}"
