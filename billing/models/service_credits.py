"""Service credits: rules on jobs whose GPU or node failed, and what was credited by them, with the evidence."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q

from billing.models.manual_lines import ManualLine
from billing.models.quota_terms import LONGEST_NAME, LONGEST_TEXT
from portal.core.audit import track
from portal.core.tenants.models import Tenant

TEXT: dict[str, Any] = {"max_length": LONGEST_TEXT}


class CreditedPart(models.TextChoices):
    """Of a job that failed, the seconds whose price is credited."""

    RUN = "run", "The whole run"
    REST = "rest", "From the failure to its end"


@track()
class FailureRule(models.Model):
    """That jobs are credited whose GPU told of one of the XIDs or of its memory, or that ended in one of the states.

    Changed in place; ended ones stay. It holds for jobs that end after `applies_from`.
    """

    name = models.SlugField(max_length=LONGEST_NAME, help_text="Unique among the rules in force.")
    cluster = models.CharField(**TEXT, blank=True, help_text="Empty: all.")
    xids = ArrayField(models.IntegerField(), default=list, blank=True)
    memory = models.BooleanField(help_text="Errors that the GPU's memory could not correct, by its counters.")
    states = ArrayField(
        models.CharField(**TEXT), default=list, blank=True, help_text="As the scheduler says them: NODE_FAIL."
    )
    part = models.CharField(max_length=4, choices=CreditedPart.choices)
    percent = models.PositiveIntegerField(help_text="Of what the part was billed.")
    watch = models.BooleanField(help_text="It is only written down what the rule would credit.")
    created_at = models.DateTimeField()
    applies_from = models.DateTimeField(help_text="When it was made or last changed.")
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["name"], condition=Q(ended_at=None), name="failure_rule_is_named_once"
            ),
            models.CheckConstraint(
                condition=Q(part__in=CreditedPart.values), name="failure_rule_credits_a_known_part"
            ),
            models.CheckConstraint(
                condition=Q(percent__gt=0, percent__lte=100), name="failure_rule_credits_a_part_of_the_price"
            ),
        ]

    def __str__(self) -> str:
        return self.name


class CreditState(models.TextChoices):
    """How far it is."""

    WATCHED = "watched", "Would be credited"
    WAITING = "waiting", "Waits for the invoice"
    CREDITED = "credited", "Credited"
    NOTHING = "nothing", "Nothing was billed"
    BY_HAND = "by-hand", "Needs review"


@track(personal=["user", "job_name"])
class ServiceCredit(models.Model):
    """One failed run by one rule: what failed, when, and what was credited for it; each run is credited once."""

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+", db_index=False)
    failure_rule = models.ForeignKey(
        FailureRule, on_delete=models.PROTECT, related_name="credits", db_index=False
    )
    record_id = models.BigIntegerField(help_text="Of the job's usage record.")
    job_id = models.TextField()
    job_name = models.TextField(blank=True)
    user = models.TextField(blank=True)
    cluster = models.CharField(**TEXT)
    failed_at = models.DateTimeField(
        help_text="The first sample that told of the error, or the end of the run."
    )
    ended_at = models.DateTimeField(help_text="The end of the run.")
    cause = models.CharField(
        max_length=LONGEST_TEXT, help_text='"XID 79", "ECC_DBE", or the state of the run.'
    )
    gpu = models.CharField(**TEXT, blank=True, help_text="UUID; empty: the run's state is the evidence.")
    node = models.CharField(**TEXT, blank=True)
    part = models.CharField(max_length=4, choices=CreditedPart.choices, help_text="As the rule said then.")
    percent = models.PositiveIntegerField()
    state = models.CharField(max_length=8, choices=CreditState.choices)
    amount = models.BigIntegerField(null=True, help_text="Minor units before tax; empty: not known yet.")
    currency = models.CharField(max_length=3, blank=True)
    line = models.OneToOneField(
        ManualLine,
        on_delete=models.SET_NULL,
        null=True,
        related_name="service_credit",
        help_text="On the next invoice; empty: none, or it was removed.",
    )
    error = models.TextField(blank=True, help_text="Why a person has to decide.")
    began_at = models.DateTimeField(help_text="When a review met it first.")
    settled_at = models.DateTimeField(null=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["tenant", "record_id"], condition=~Q(state="watched"), name="run_is_credited_once"
            ),
            models.UniqueConstraint(
                fields=["tenant", "failure_rule", "record_id"], name="rule_meets_a_failed_run_once"
            ),
            models.CheckConstraint(
                condition=Q(state__in=CreditState.values, part__in=CreditedPart.values),
                name="service_credit_is_of_a_known_state",
            ),
            models.CheckConstraint(
                condition=~Q(state="credited") | Q(amount__gt=0), name="service_credit_has_an_amount"
            ),
            models.CheckConstraint(
                condition=Q(ended_at__gte=F("failed_at")),
                name="service_credit_is_of_a_failure_within_its_run",
            ),
        ]
        indexes: ClassVar = [
            models.Index(fields=["tenant", "record_id"], name="service_credits_of_run"),
            models.Index(fields=["began_at"], name="service_credits_by_time"),
        ]

    def __str__(self) -> str:
        return f"job {self.job_id}: {self.cause}"
