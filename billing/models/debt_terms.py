"""What becomes of the jobs of whoever's wallet is below zero: written with the scheme of the wallets."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import Q

from billing.models.quota_terms import QuotaAction
from billing.models.wallets import WalletScheme
from portal.core.audit import track


@track()
class DebtTerms(models.Model):
    """While a wallet of the scheme is below zero, and until it has `free_at` again, its owner's jobs are acted on."""

    scheme = models.OneToOneField(WalletScheme, on_delete=models.PROTECT, related_name="debt")
    action = models.CharField(
        max_length=14,
        choices=[(one.value, one.label) for one in (QuotaAction.HOLD_JOBS, QuotaAction.END_JOBS)],
    )
    demand_above = models.PositiveSmallIntegerField(
        null=True,
        help_text="Only on clusters of which running jobs hold more than so many percent of the GPUs; empty: always.",
    )
    grace_minutes = models.PositiveIntegerField(
        null=True, help_text="Of ending jobs: from the warning to the end."
    )
    free_at = models.BigIntegerField(
        default=0, help_text="The balance with which it ends, in smallest units."
    )
    watch = models.BooleanField(
        default=True, help_text="Nothing is done: the history says what would have been done."
    )

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=Q(action="end-jobs", grace_minutes__gte=15)
                | Q(action="hold-jobs", grace_minutes=None),
                name="debt_that_ends_jobs_has_a_grace",
            ),
            models.CheckConstraint(
                condition=Q(demand_above=None) | Q(demand_above__lt=100), name="demand_is_below_all_gpus"
            ),
            models.CheckConstraint(condition=Q(free_at__gte=0), name="debt_ends_at_zero_or_above"),
        ]

    def __str__(self) -> str:
        return f"debt in {self.scheme}"
