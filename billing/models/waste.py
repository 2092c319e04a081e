"""Waste rules: GPUs that running jobs hold and do not use; what was found by them, announced, ended and saved."""

from __future__ import annotations

from typing import Any, ClassVar

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q

from billing.models.quota_terms import LONGEST_NAME, LONGEST_TEXT
from portal.core.audit import track
from portal.core.tenants.models import Tenant

TEXT: dict[str, Any] = {"max_length": LONGEST_TEXT}


class WasteKind(models.TextChoices):
    """Which part of a job's telemetry counts."""

    IDLE = "idle", "Idle now"
    TAIL = "tail", "Idle after it has worked"
    UNUSED = "unused", "Idle since it started"


class WasteAction(models.TextChoices):
    """What is done with a job that meets the rule."""

    NOTIFY = "notify", "Only notify"
    REQUEUE = "requeue", "Requeue it, held, after a grace"
    CANCEL = "cancel", "Cancel it after a grace"


class WasteChoiceKind(models.TextChoices):
    """What owners of a tenant may decide."""

    NONE = "none", "It applies to all tenants"
    OPT_OUT = "opt-out", "Tenants may opt out"
    OPT_IN = "opt-in", "Only for tenants that opt in"


class WasteRuleQuerySet(models.QuerySet["WasteRule"]):
    def in_force(self) -> WasteRuleQuerySet:
        """Those that were not ended."""
        return self.filter(ended_at=None)


@track()
class WasteRule(models.Model):
    """That GPUs held for hours without use are told of, or taken from the job. Changed in place; ended ones stay."""

    name = models.SlugField(max_length=LONGEST_NAME, help_text="Unique among the rules in force.")
    cluster = models.CharField(**TEXT, blank=True, help_text="Empty: all.")
    kind = models.CharField(max_length=6, choices=WasteKind.choices)
    hours = models.PositiveIntegerField(help_text="So many whole hours in a row.")
    busy_at_most = models.PositiveIntegerField(
        help_text="Percent of an hour's GPU time that still count as idle."
    )
    except_queues = ArrayField(models.CharField(**TEXT), default=list, blank=True)
    except_qoses = ArrayField(models.CharField(**TEXT), default=list, blank=True)
    except_names = ArrayField(
        models.CharField(**TEXT), default=list, blank=True, help_text="Of jobs; * stands for any characters."
    )
    action = models.CharField(max_length=7, choices=WasteAction.choices)
    grace_minutes = models.PositiveIntegerField(help_text="From the announcement to the end.")
    watch = models.BooleanField(help_text="It is only written down what the rule would do.")
    choice = models.CharField(max_length=7, choices=WasteChoiceKind.choices)
    created_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)

    objects: ClassVar = WasteRuleQuerySet.as_manager()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["name"], condition=Q(ended_at=None), name="waste_rule_is_named_once"
            ),
            models.CheckConstraint(
                condition=Q(kind__in=WasteKind.values)
                & Q(action__in=WasteAction.values)
                & Q(choice__in=WasteChoiceKind.values),
                name="waste_rule_is_of_known_kinds",
            ),
            models.CheckConstraint(
                condition=Q(hours__gt=0, busy_at_most__lte=100, grace_minutes__gt=0),
                name="waste_rule_leaves_time",
            ),
        ]

    def __str__(self) -> str:
        return self.name


@track()
class WasteChoice(models.Model):
    """Whether a rule that leaves it to tenants holds for this one."""

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+", db_index=False)
    rule = models.ForeignKey(WasteRule, on_delete=models.PROTECT, related_name="choices", db_index=False)
    takes_part = models.BooleanField()
    chosen_at = models.DateTimeField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["tenant", "rule"], name="waste_choice_is_made_once"),
        ]

    def __str__(self) -> str:
        return f"{self.rule}: {'in' if self.takes_part else 'out'}"


class WasteState(models.TextChoices):
    """How far it is."""

    NOTIFIED = "notified", "Notified"
    WATCHED = "watched", "Would be ended"
    ANNOUNCED = "announced", "Announced"
    ENDED = "ended", "Cancelled"
    REQUEUED = "requeued", "Requeued, held"


class WasteClosed(models.TextChoices):
    """Why nothing more is done about it."""

    ENDED = "ended", "Ended by the rule"
    BUSY = "busy", "It worked again"
    OVER = "over", "It ended on its own"
    UNKNOWN = "unknown", "Its telemetry is missing"
    CHANGED = "changed", "The rule does not hold for it any more"


@track(exclude=["error", "tries", "next_at"], personal=["user", "job_name"])
class WasteFinding(models.Model):
    """That one running job met one rule, from when to when; and what was done, with the money it costs an hour."""

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+", db_index=False)
    rule = models.ForeignKey(WasteRule, on_delete=models.PROTECT, related_name="findings", db_index=False)
    record_id = models.BigIntegerField(help_text="Of the job's usage record.")
    job_key = models.TextField(help_text="As its scheduler knows it: number@submission.")
    job_id = models.TextField()
    job_name = models.TextField(blank=True)
    user = models.TextField(blank=True)
    cluster = models.CharField(**TEXT)
    account = models.CharField(**TEXT)
    gpus = models.IntegerField(help_text="Whole GPUs, or slices of share_num/share_den each.")
    share_num = models.IntegerField()
    share_den = models.IntegerField()
    gpu_model = models.TextField(blank=True)
    state = models.CharField(max_length=9, choices=WasteState.choices)
    began_at = models.DateTimeField(help_text="When a pass met it first.")
    idle_since = models.DateTimeField(help_text="The whole hours since then are known to be idle.")
    hour_cost = models.DecimalField(
        max_digits=24,
        decimal_places=12,
        null=True,
        help_text="At the price of the first unit; empty: no price.",
    )
    currency = models.CharField(max_length=3, blank=True)
    limit_at = models.DateTimeField(null=True, help_text="When its time limit ends it; empty: it has none.")
    due_at = models.DateTimeField(null=True, help_text="When the grace is over; empty: nothing is ended.")
    warned_at = models.DateTimeField(null=True, help_text="When it was announced again, shortly before.")
    ended_at = models.DateTimeField(null=True, help_text="When the rule has ended it.")
    closed_at = models.DateTimeField(null=True)
    closed_for = models.CharField(max_length=7, choices=WasteClosed.choices, blank=True)
    ran_until = models.DateTimeField(
        null=True, help_text="Until when it was idle, or ran: where the rule has not ended it."
    )
    error = models.TextField(blank=True, help_text="Why it could not be ended yet; it is tried again.")
    tries = models.PositiveIntegerField(default=0)
    next_at = models.DateTimeField(null=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["rule", "record_id"], condition=Q(closed_at=None), name="waste_is_found_once"
            ),
            models.CheckConstraint(
                condition=Q(state__in=WasteState.values) & Q(closed_for__in=["", *WasteClosed.values]),
                name="waste_finding_is_of_a_known_state",
            ),
            models.CheckConstraint(
                condition=~Q(state__in=["watched", "announced"]) | Q(due_at__gt=F("began_at")),
                name="waste_ends_after_a_grace",
            ),
            models.CheckConstraint(
                condition=~Q(state__in=["ended", "requeued"])
                | Q(ended_at__isnull=False, closed_at__isnull=False),
                name="waste_that_ended_has_a_moment",
            ),
        ]
        indexes: ClassVar = [
            models.Index(fields=["tenant", "began_at"], name="waste_findings_of_tenant"),
            models.Index(fields=["began_at"], name="waste_findings_by_time"),
        ]

    def __str__(self) -> str:
        return f"job {self.job_id}: {self.get_state_display()}"

    @property
    def source(self) -> str:
        """Who ends it, as the scheduler's history has it: the rule, by this finding and no other."""
        return f"{WASTE_SOURCE}{self.rule_id}:{self.pk}"


WASTE_SOURCE = "waste:"
"""How the names of rules begin among those who act on schedulers."""
