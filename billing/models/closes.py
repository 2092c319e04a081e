"""Closes that operators or the schedule ask for: previewed or issued by a worker, with what became of each tenant."""

from __future__ import annotations

from typing import ClassVar

from django.contrib.postgres.fields import ArrayField
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import F, Q, QuerySet

from billing.models.rated import BillingPeriod
from portal.core.audit import track
from portal.core.tenants.models import Tenant


class CloseKind(models.TextChoices):
    """What a close was asked for."""

    PREVIEW = "preview", "Preview"
    ISSUE = "issue", "Close"


class CloseRunQuerySet(QuerySet["CloseRun"]):
    """Runs by how far they are."""

    def unfinished(self) -> CloseRunQuerySet:
        return self.filter(ended_at__isnull=True)


@track(exclude=["done", "started_at", "attempts"])
class CloseRun(models.Model):
    """One close of a month, for all tenants or those that are due. A worker goes on with it where another one died."""

    month = models.CharField(max_length=7, help_text="2026-03: in which the periods start.")
    kind = models.CharField(max_length=9, choices=CloseKind.choices)
    scheduled = models.BooleanField(default=False, help_text="Only of the tenants whose day had come.")
    requested_by = models.CharField(max_length=200)
    requested_at = models.DateTimeField(help_text="When an operator or the schedule asked for it.")
    accept_incomplete = models.TextField(blank=True, help_text="Why it bills although usage may be missing.")
    total = models.PositiveIntegerField(help_text="Tenants.")
    done = models.PositiveIntegerField(default=0, help_text="Tenants.")
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    attempts = models.PositiveSmallIntegerField(
        default=0, help_text="Workers that took it up since tenants were last done."
    )
    error = models.TextField(blank=True, help_text="Why it was given up.")

    objects = CloseRunQuerySet.as_manager()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["month"], condition=Q(ended_at__isnull=True), name="month_is_closed_by_one_at_a_time"
            ),
            models.CheckConstraint(condition=Q(kind__in=CloseKind.values), name="close_kind_is_known"),
            models.CheckConstraint(condition=Q(done__lte=F("total")), name="close_is_done_once"),
        ]

    def __str__(self) -> str:
        return f"{self.get_kind_display()} of {self.month}"


class CloseResult(models.Model):
    """What became of one tenant in a run; of a preview, what would."""

    run = models.ForeignKey(CloseRun, on_delete=models.CASCADE, db_index=False, related_name="results")
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    outcome = models.CharField(max_length=20, help_text="As the close tells it, such as 'blocked'.")
    number = models.CharField(max_length=40, blank=True)
    currency = models.CharField(max_length=3, blank=True)
    total = models.BigIntegerField(null=True, help_text="Minor units, with tax.")
    details = models.JSONField(help_text="As `close_period --json` prints it.")

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["run", "tenant"], name="tenant_is_closed_once_in_a_run")
        ]
        indexes: ClassVar = [models.Index(fields=["run", "outcome", "id"], name="results_by_outcome")]

    def __str__(self) -> str:
        return f"{self.tenant}: {self.outcome}"


FIRST_DAY, LAST_DAY = 1, 28
"""Of a schedule: every month has them."""
A_DAY = (MinValueValidator(FIRST_DAY), MaxValueValidator(LAST_DAY))


@track()
class CloseSchedule(models.Model):
    """On which days a period is previewed and issued by itself: of one tenant, or of all without such a row."""

    tenant = models.ForeignKey(
        Tenant,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="close_schedules",
        help_text="Empty: of every tenant that has no schedule of its own.",
    )
    preview_day = models.PositiveSmallIntegerField(
        null=True,
        blank=True,
        validators=A_DAY,
        help_text="1: the first day after the period. Empty: by hand.",
    )
    issue_day = models.PositiveSmallIntegerField(
        null=True, blank=True, validators=A_DAY, help_text="As preview_day, and not before it."
    )
    since = models.DateField(help_text="Periods whose last day is earlier are closed by hand.")

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["tenant"], nulls_distinct=False, name="close_schedule_is_set_once"
            ),
            models.CheckConstraint(
                condition=(Q(preview_day=None) | Q(preview_day__range=(FIRST_DAY, LAST_DAY)))
                & (Q(issue_day=None) | Q(issue_day__range=(FIRST_DAY, LAST_DAY))),
                name="close_schedule_has_days_of_every_month",
            ),
            models.CheckConstraint(
                condition=Q(preview_day=None) | Q(issue_day=None) | Q(preview_day__lte=F("issue_day")),
                name="close_schedule_previews_before_it_issues",
            ),
        ]

    def __str__(self) -> str:
        return f"close schedule of {self.tenant or 'everyone'}"


class ScheduledClose(models.Model):
    """That the schedule asked for a preview or the issue of a period: once, whatever came of it."""

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="scheduled_closes")
    period = models.ForeignKey(BillingPeriod, on_delete=models.PROTECT, db_index=False, related_name="+")
    kind = models.CharField(max_length=9, choices=CloseKind.choices)
    run = models.ForeignKey(CloseRun, on_delete=models.PROTECT, related_name="scheduled_closes")

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["period", "kind"], name="period_is_scheduled_once_of_each_kind"),
            models.CheckConstraint(condition=Q(kind__in=CloseKind.values), name="scheduled_kind_is_known"),
        ]

    def __str__(self) -> str:
        return f"{self.get_kind_display()} of {self.period}"


class ReportState(models.TextChoices):
    WAITING = "waiting", "Waiting to be sent"
    SENDING = "sending", "Given to the mail server, which has not answered"
    SENT = "sent", "Sent"
    DRAFTED = "drafted", "Drafted: EMAIL_URL is not set"
    FAILED = "failed", "Could not be sent"


class CloseReport(models.Model):
    """The e-mail to operators about a scheduled run: a row of the transaction that ends the run, sent at most once."""

    run = models.OneToOneField(CloseRun, on_delete=models.CASCADE, related_name="report")
    subject = models.TextField()
    text = models.TextField()
    state = models.CharField(max_length=8, choices=ReportState.choices, default=ReportState.WAITING)
    not_before = models.DateTimeField(help_text="Later than the run's end where the mail server refused it.")
    tries = models.PositiveSmallIntegerField(default=0)
    to = ArrayField(models.EmailField(), default=list)
    sent_at = models.DateTimeField(null=True, help_text="When it was given to the mail server, or drafted.")
    reason = models.TextField(blank=True, help_text="Why it was not sent, or not yet.")

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(condition=Q(state__in=ReportState.values), name="report_state_is_known"),
        ]

    def __str__(self) -> str:
        return f"report of {self.run}: {self.get_state_display()}"
