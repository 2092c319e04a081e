"""Quotas: how much of something may be used in a period, and who is told when; what was told of which period."""

from __future__ import annotations

from decimal import Decimal
from typing import ClassVar

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q

from billing.models.notices import Notice
from billing.models.quota_terms import (
    AMOUNT,
    LONGEST_NAME,
    LONGEST_TEXT,
    SCOPE,
    QuotaColumns,
    QuotaCredits,
    QuotaMeasure,
)
from billing.models.wallets import Wallet
from billing.rules.quotas import THRESHOLD_TEXT, Watched
from portal.core.audit import track
from portal.core.tenants.models import Project, Tenant


class QuotaSetBy(models.TextChoices):
    """In whose name a quota stands as it is: only operators' take the place of a plan's."""

    OWNER = "owner", "An owner of the tenant"
    OPERATOR = "operator", "An operator"
    PLAN = "plan", "The tenant's plan"
    WALLET = "wallet", "The terms of the tenant's wallets"


class QuotaQuerySet(models.QuerySet["Quota"]):
    def in_force(self) -> QuotaQuerySet:
        """Those that were not ended."""
        return self.filter(ended_at=None)


@track(personal=["user"])
class Quota(QuotaColumns):
    """So much of a tenant's use, or of a part of it, in each period. Changed in place: the history has each change.

    An ended quota stays, with what was told of it; its name is free again.
    """

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="quotas")
    name = models.SlugField(max_length=LONGEST_NAME, help_text="Unique among the tenant's quotas.")
    project = models.ForeignKey(
        Project, on_delete=models.PROTECT, null=True, blank=True, related_name="+", help_text="Empty: all."
    )
    user = models.CharField(max_length=LONGEST_TEXT, blank=True, help_text="Of the scheduler; empty: all.")
    account = models.CharField(max_length=LONGEST_TEXT, blank=True, help_text="Empty: all.")
    cap = models.DecimalField(
        **AMOUNT, null=True, blank=True, help_text="Owners may set the amount up to this; operators set it."
    )
    recipients = ArrayField(
        models.EmailField(),
        default=list,
        blank=True,
        help_text="Members who are told; empty: owners and billing members.",
    )
    set_by = models.CharField(
        max_length=8,
        choices=QuotaSetBy.choices,
        help_text="Who set it last; one of the plan comes, changes and goes with that.",
    )
    wallet = models.ForeignKey(
        Wallet,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="+",
        help_text="It counts what the wallet has too little: it comes and goes with the wallet's debt.",
    )
    demand_above = models.PositiveSmallIntegerField(
        null=True,
        blank=True,
        help_text="It acts on clusters of which running jobs hold more than so many percent; empty: always.",
    )
    lends = models.BooleanField(
        default=False,
        help_text="A pool: it counts what quotas of projects that borrow from it have used beyond their own.",
    )
    borrows_from = models.ForeignKey(
        "self",
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="+",
        help_text="The pool of which it may use more, once its own amount is used.",
    )
    created_at = models.DateTimeField()
    counts_since = models.DateTimeField(
        help_text="Since when it counts the same in the same periods: nothing is carried over from before."
    )
    ended_at = models.DateTimeField(null=True, blank=True)

    objects: ClassVar = QuotaQuerySet.as_manager()

    class Meta(QuotaColumns.Meta):
        constraints: ClassVar = [
            *QuotaColumns.Meta.constraints,
            models.UniqueConstraint(
                fields=["tenant", "name"], condition=Q(ended_at=None), name="quota_is_named_once_per_tenant"
            ),
            models.CheckConstraint(condition=Q(set_by__in=QuotaSetBy.values), name="quota_setter_is_known"),
            models.CheckConstraint(
                condition=(Q(set_by="wallet", wallet__isnull=False) & Q(every="rolling", measure="credits"))
                | (~Q(set_by="wallet") & Q(wallet=None, demand_above=None)),
                name="quota_of_a_wallet_has_no_periods",
            ),
            models.CheckConstraint(
                condition=Q(lends=False)
                | Q(
                    **dict.fromkeys(SCOPE, ""),
                    project=None,
                    borrows_from=None,
                    action="notify",
                    carry_over=0,
                    carry_overdraft=False,
                ),
                name="quota_that_lends_is_of_the_whole_tenant",
            ),
            models.CheckConstraint(
                condition=Q(borrows_from=None)
                | Q(**dict.fromkeys(SCOPE, ""), project__isnull=False, carry_over=0, carry_overdraft=False),
                name="quota_that_borrows_is_of_a_project",
            ),
            models.UniqueConstraint(
                fields=["borrows_from", "project"],
                condition=Q(ended_at=None, borrows_from__isnull=False),
                name="project_borrows_once_from_a_pool",
            ),
            models.CheckConstraint(
                condition=Q(cap=None) | Q(cap__gte=F("amount")), name="quota_is_within_its_cap"
            ),
            models.CheckConstraint(
                condition=Q(with_paid=False) | Q(measure="money", project=None),
                name="quota_of_what_is_paid_is_of_money",
            ),
            models.CheckConstraint(
                condition=Q(action="notify")
                | Q(queue="", qos="", gpu_model="", user="")
                | Q(queue="", qos="", gpu_model="", action__in=["hold-jobs", "end-jobs"]),
                name="quota_that_blocks_is_of_whole_accounts",
            ),
        ]
        indexes: ClassVar = [
            models.Index(fields=["tenant"], condition=Q(ended_at=None), name="quotas_in_force_of_tenant")
        ]

    def __str__(self) -> str:
        return f"{self.name} of {self.tenant}"

    @property
    def is_of_whole_tenant(self) -> bool:
        """Whether nothing narrows what it counts."""
        return self.project_id is None and not any(getattr(self, column) for column in SCOPE)

    @property
    def counts_corrections(self) -> bool:
        """Whether it is on what is billed: corrections of earlier periods count where an invoice brings them."""
        is_money = self.measure == QuotaMeasure.MONEY and self.is_of_whole_tenant
        return is_money and self.credits != QuotaCredits.GROSS


class QuotaPeriod(models.Model):
    """One period of a quota as it was last looked at: the period is part of the key, so nothing is ever reset.

    Of a rolling window there is one row, which begins when the quota did.
    """

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+", db_index=False)
    quota = models.ForeignKey(Quota, on_delete=models.PROTECT, related_name="periods", db_index=False)
    start = models.DateTimeField()
    end = models.DateTimeField(null=True, help_text="Empty: of a rolling window.")
    amount = models.DecimalField(**AMOUNT, help_text="Of the quota, when it was looked at.")
    carried = models.DecimalField(
        **AMOUNT, default=0, help_text="What the period before left for it; below zero: what it overdrew."
    )
    borrowable = models.DecimalField(
        **AMOUNT, default=0, help_text="Of one that borrows: so much more it may use of its pool."
    )
    used = models.DecimalField(
        max_digits=30, decimal_places=12, help_text="Rounded; counters are the rated usage itself."
    )
    counted_on = models.DecimalField(
        max_digits=30,
        decimal_places=12,
        help_text="Of it, what running jobs have used since they were rated.",
    )
    forecast = models.DecimalField(
        max_digits=30,
        decimal_places=12,
        null=True,
        help_text="What the period will come to; empty: not told yet.",
    )
    as_of = models.DateTimeField(null=True, help_text="Up to when all clusters are read; empty: none is.")
    evaluated_at = models.DateTimeField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["quota", "start"], name="quota_period_is_kept_once"),
        ]
        indexes: ClassVar = [models.Index(fields=["tenant", "start"], name="quota_periods_of_tenant")]

    def __str__(self) -> str:
        return f"{self.quota} from {self.start:%Y-%m-%d %H:%M}"

    @property
    def available(self) -> Decimal:
        """What might be used in it of its own."""
        return max(self.amount + self.carried, Decimal(0))

    @property
    def limit(self) -> Decimal:
        """The same with what it might borrow."""
        return self.available + self.borrowable


class QuotaWatched(models.TextChoices):
    """`Watched` as a column."""

    USED = Watched.USED.value, "Used"
    FORECAST = Watched.FORECAST.value, "Forecast"
    STALE = Watched.STALE.value, "No new usage"


class QuotaCrossing(models.Model):
    """That a threshold was reached in a period: one row while it stands, whoever looks and however often."""

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+", db_index=False)
    quota = models.ForeignKey(Quota, on_delete=models.PROTECT, related_name="crossings", db_index=False)
    start = models.DateTimeField(help_text="Of its period.")
    watched = models.CharField(max_length=8, choices=QuotaWatched.choices)
    threshold = models.CharField(max_length=THRESHOLD_TEXT, blank=True)
    amount = models.DecimalField(**AMOUNT, help_text="Of the quota then.")
    used = models.DecimalField(max_digits=30, decimal_places=12, help_text="Or forecast.")
    at = models.DateTimeField()
    silent = models.BooleanField(
        help_text="It was passed before the quota was made or changed: nobody is told."
    )
    late = models.BooleanField(help_text="By usage that became known late.")
    cleared_at = models.DateTimeField(null=True, help_text="When it was below again.")
    notice = models.ForeignKey(
        Notice,
        on_delete=models.PROTECT,
        null=True,
        related_name="+",
        help_text="The e-mail that tells of it.",
    )

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["quota", "start", "watched", "threshold"],
                condition=Q(cleared_at=None),
                name="quota_threshold_is_crossed_once",
            ),
            models.CheckConstraint(
                condition=Q(watched__in=QuotaWatched.values), name="quota_crossing_is_of_a_known_kind"
            ),
        ]
        indexes: ClassVar = [models.Index(fields=["tenant", "at"], name="quota_crossings_of_tenant")]

    def __str__(self) -> str:
        return f"{self.quota}: {self.threshold} {self.watched}"


class QuotaChange(models.Model):
    """That a tenant's figures may be others since they were looked at: rating writes one, and whoever sets a quota.

    A pass deletes those that it has read, so that none waits for another.
    """

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")

    def __str__(self) -> str:
        return str(self.tenant)


class QuotaReview(models.Model):
    """When a tenant's quotas are looked at next, though nothing is rated until then."""

    tenant = models.OneToOneField(Tenant, on_delete=models.PROTECT, related_name="+", primary_key=True)
    next_at = models.DateTimeField()

    class Meta:
        indexes: ClassVar = [models.Index(fields=["next_at"], name="quota_reviews_by_time")]

    def __str__(self) -> str:
        return str(self.tenant)
