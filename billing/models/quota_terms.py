"""What a quota says, whoever has it: a tenant, or all who are on a version of a plan."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, ClassVar

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q

from billing.models.plans import PlanVersion
from billing.rules.quotas import THRESHOLD_TEXT, Every
from portal.core.audit import track

LONGEST_NAME = 50
LONGEST_TEXT = 255
AMOUNT: dict[str, Any] = {"max_digits": 24, "decimal_places": 6}


class QuotaMeasure(models.TextChoices):
    """What is counted."""

    MONEY = "money", "Money, before tax"
    GPU_HOURS = "gpu-hours", "GPU-hours"
    CREDITS = "credits", "Wallet credits"


class QuotaCredits(models.TextChoices):
    """Whether credit that is given, and what is paid into wallets, lowers what counts as used of a quota."""

    GROSS = "gross", "Do not count"
    NET = "net", "Lower what is used"
    PAID = "paid", "Lower what is used, and top-ups do, too"


class QuotaEvery(models.TextChoices):
    """`Every` as a column."""

    DAY = Every.DAY.value, "Day"
    WEEK = Every.WEEK.value, "Week"
    MONTH = Every.MONTH.value, "Month"
    QUARTER = Every.QUARTER.value, "Quarter"
    YEAR = Every.YEAR.value, "Year"
    BILLING_PERIOD = Every.BILLING_PERIOD.value, "Billing period"
    TERM = Every.TERM.value, "Fixed term"
    ROLLING = Every.ROLLING.value, "Rolling window"


class QuotaAction(models.TextChoices):
    """What is done while all of it is used."""

    NOTIFY = "notify", "Only notify"
    HOLD_JOBS = "hold-jobs", "Waiting jobs are held"
    NO_GPU_JOBS = "no-gpu-jobs", "No new GPU job starts"
    NO_SUBMISSIONS = "no-submissions", "No new job can be submitted"
    END_JOBS = "end-jobs", "Running jobs are ended after a grace"


SCOPE = ("user", "account", "cluster", "queue", "qos", "gpu_model")
"""Columns of a quota that usage has to match, beside the project; empty: any."""


class QuotaColumns(models.Model):
    """The columns that quotas of tenants and of plans share."""

    cluster = models.CharField(max_length=LONGEST_TEXT, blank=True, help_text="Empty: all.")
    queue = models.CharField(max_length=LONGEST_TEXT, blank=True, help_text="Empty: all.")
    qos = models.CharField(max_length=LONGEST_TEXT, blank=True, help_text="Empty: all.")
    gpu_model = models.CharField(max_length=LONGEST_TEXT, blank=True, help_text="Empty: all.")
    measure = models.CharField(max_length=10, choices=QuotaMeasure.choices)
    unit = models.CharField(
        max_length=3, blank=True, help_text="Currency, or unit of the wallet; empty for GPU-hours."
    )
    credits = models.CharField(
        max_length=5,
        choices=QuotaCredits.choices,
        default=QuotaCredits.GROSS,
        help_text="Of the whole tenant: whether credit that is given, or paid in, lowers what is used.",
    )
    with_paid = models.BooleanField(
        default=False, help_text="Of money of the whole tenant: what it pays for other tenants counts, too."
    )
    amount = models.DecimalField(
        **AMOUNT, help_text="In whole units: dollars, GPU-hours, credits. 0: nothing may be used."
    )
    every = models.CharField(max_length=14, choices=QuotaEvery.choices)
    first_day = models.DateField(null=True, blank=True, help_text="Of a fixed term, in the tenant's zone.")
    end_day = models.DateField(null=True, blank=True, help_text="The first day behind a fixed term.")
    hours = models.PositiveIntegerField(null=True, blank=True, help_text="Of a rolling window.")
    carry_over = models.PositiveSmallIntegerField(
        default=0,
        help_text="Of what a period leaves the next one may use more: at most so many percent of the amount.",
    )
    carry_overdraft = models.BooleanField(
        default=False, help_text="What a period used beyond its amount the next one may use less."
    )
    thresholds = ArrayField(
        models.CharField(max_length=THRESHOLD_TEXT),
        default=list,
        blank=True,
        help_text='Of what is used: "80%" of the amount, or "800.00" of its unit.',
    )
    forecasts = ArrayField(
        models.CharField(max_length=THRESHOLD_TEXT),
        default=list,
        blank=True,
        help_text="Of what the period will come to.",
    )
    repeat_every = models.DecimalField(
        **AMOUNT,
        null=True,
        blank=True,
        help_text="Beyond the last threshold, a notice at each further so many.",
    )
    action = models.CharField(
        max_length=14,
        choices=QuotaAction.choices,
        default=QuotaAction.NOTIFY,
        help_text="On the accounts in its scope, while all of the amount is used.",
    )
    grace_minutes = models.PositiveIntegerField(
        null=True, blank=True, help_text="Of ending jobs: from the warning to the end."
    )
    ends_older = models.BooleanField(
        default=False, help_text="Of ending jobs: also those that began before the quota was made."
    )
    watch = models.BooleanField(
        default=False, help_text="Nothing is done: the history says what would have been done."
    )
    reservation_cap = models.DecimalField(
        **AMOUNT,
        null=True,
        blank=True,
        help_text="One reservation holds at most so much of it, even if its job may use more; empty: all of that.",
    )

    class Meta:
        abstract = True
        constraints: ClassVar = [
            models.CheckConstraint(condition=Q(amount__gte=0), name="%(class)s_amount_is_not_negative"),
            models.CheckConstraint(
                condition=Q(measure="gpu-hours", unit="") | Q(measure__in=["money", "credits"]) & ~Q(unit=""),
                name="%(class)s_has_the_unit_of_its_measure",
            ),
            models.CheckConstraint(
                condition=Q(credits="gross") | ~Q(measure="gpu-hours") & ~Q(credits="net", measure="credits"),
                name="%(class)s_net_of_credits_is_of_amounts",
            ),
            models.CheckConstraint(
                condition=Q(every__in=QuotaEvery.values), name="%(class)s_period_is_known"
            ),
            models.CheckConstraint(
                condition=(Q(every="term") & Q(end_day__gt=F("first_day")))
                | (~Q(every="term") & Q(first_day=None, end_day=None)),
                name="%(class)s_of_a_term_has_its_days",
            ),
            models.CheckConstraint(
                condition=(Q(every="rolling") & Q(hours__gt=0)) | (~Q(every="rolling") & Q(hours=None)),
                name="%(class)s_of_a_window_has_its_hours",
            ),
            models.CheckConstraint(condition=Q(carry_over__lte=100), name="%(class)s_carries_all_at_most"),
            models.CheckConstraint(
                condition=Q(carry_over=0, carry_overdraft=False) | ~Q(every__in=["term", "rolling"]),
                name="%(class)s_that_carries_has_periods",
            ),
            models.CheckConstraint(
                condition=Q(repeat_every=None) | Q(repeat_every__gt=0), name="%(class)s_repeats_at_something"
            ),
            models.CheckConstraint(
                condition=Q(action__in=QuotaAction.values), name="%(class)s_action_is_known"
            ),
            models.CheckConstraint(
                condition=Q(reservation_cap=None) | Q(reservation_cap__gt=0),
                name="%(class)s_reserves_something",
            ),
            models.CheckConstraint(
                condition=Q(action="end-jobs", grace_minutes__gte=15)
                | (~Q(action="end-jobs") & Q(grace_minutes=None, ends_older=False)),
                name="%(class)s_that_ends_jobs_has_a_grace",
            ),
        ]

    @property
    def acts_text(self) -> str:
        """What it does beside notifying, in one word: `no-gpu-jobs`, `no-gpu-jobs (watched)`; "" for nothing."""
        if self.action == QuotaAction.NOTIFY:
            return ""
        return f"{self.action} (watched)" if self.watch else self.action

    @property
    def carries(self) -> bool:
        """Whether a period depends on the one before."""
        return self.carry_over > 0 or self.carry_overdraft


@track()
class PlanQuota(QuotaColumns):
    """A quota that each subscriber of the version has: a row of its own, which counts and acts as every other.

    It changes with versions of the plan alone, once one is in use.
    """

    version = models.ForeignKey(PlanVersion, on_delete=models.PROTECT, related_name="quotas")
    name = models.SlugField(max_length=LONGEST_NAME, help_text="Unique in the version.")

    class Meta(QuotaColumns.Meta):
        constraints: ClassVar = [
            *QuotaColumns.Meta.constraints,
            models.UniqueConstraint(fields=["version", "name"], name="plan_has_a_quota_of_a_name_once"),
            models.CheckConstraint(
                condition=Q(with_paid=False) | Q(measure="money"),
                name="planquota_of_what_is_paid_is_of_money",
            ),
            models.CheckConstraint(
                condition=Q(action="notify") | Q(queue="", qos="", gpu_model=""),
                name="planquota_that_blocks_is_of_whole_accounts",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} of plan {self.version}"


def plain(amount: Decimal) -> str:
    """Without exponent and zeros at its end."""
    return f"{amount.normalize():f}"
