"""Which e-mails people want when; and those that wait for one person, until a digest or the end of quiet hours."""

from __future__ import annotations

from datetime import time
from typing import ClassVar
from zoneinfo import ZoneInfo

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q

from billing.models.notices import Notice, NoticeState, OutgoingEmail
from billing.rules.notice_times import NoticeTimes
from portal.core.audit import track
from portal.core.tenants.models import Membership, Tenant, validate_zone

OPERATOR_TOPICS = ("endings", "budgets", "payments", "overdue", "suspensions", "invoices", "receipts")
"""What operators can subscribe to."""


class NoticeTiming(models.TextChoices):
    AT_ONCE = "at-once", "At once"
    DIGEST = "digest", "In the daily digest"
    NEVER = "never", "Not at all"


class NoticeSchedule(models.Model):
    """When in the day somebody is mailed."""

    digest_at = models.TimeField(default=time(8), help_text="Local time of the daily digest.")
    quiet_from = models.TimeField(null=True, help_text="Empty: no quiet hours.")
    quiet_until = models.TimeField(null=True, help_text="Before quiet_from: on the next day.")
    timezone = models.CharField(max_length=64, blank=True, validators=[validate_zone])

    class Meta:
        abstract = True
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=Q(quiet_from=None, quiet_until=None)
                | (Q(quiet_from__isnull=False, quiet_until__isnull=False) & ~Q(quiet_from=F("quiet_until"))),
                name="%(class)s_quiet_hours_have_two_ends",
            )
        ]

    def times(self, zone: ZoneInfo) -> NoticeTimes:
        """In the person's own zone, or the given one."""
        own = ZoneInfo(self.timezone) if self.timezone else zone
        return NoticeTimes(own, self.digest_at, self.quiet_from, self.quiet_until)


@track()
class NoticePreference(NoticeSchedule):
    """How a member wants the e-mails of a tenant that may wait. Without one, all of them come at once."""

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="+")
    membership = models.OneToOneField(Membership, on_delete=models.CASCADE, related_name="+")
    budgets = models.CharField(
        max_length=7, choices=NoticeTiming.choices, default=NoticeTiming.AT_ONCE, help_text="Of budgets."
    )
    receipts = models.CharField(
        max_length=7,
        choices=NoticeTiming.choices,
        default=NoticeTiming.AT_ONCE,
        help_text="Receipts and refunds.",
    )

    class Meta(NoticeSchedule.Meta):
        constraints: ClassVar = [
            *NoticeSchedule.Meta.constraints,
            models.CheckConstraint(
                condition=Q(budgets__in=NoticeTiming.values, receipts__in=NoticeTiming.values),
                name="notice_preference_is_known",
            ),
        ]

    def __str__(self) -> str:
        return f"e-mails to {self.membership}"


@track()
class OperatorSubscription(NoticeSchedule):
    """Which notices of which tenants an operator is mailed, too."""

    user = models.OneToOneField(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    topics = ArrayField(models.CharField(max_length=12), default=list, help_text="Some of OPERATOR_TOPICS.")
    tenants = ArrayField(models.SlugField(), default=list, help_text="Their slugs; none: all tenants.")
    digest = models.BooleanField(default=True, help_text="One e-mail a day; false: at once.")

    class Meta(NoticeSchedule.Meta):
        constraints: ClassVar = [
            *NoticeSchedule.Meta.constraints,
            models.CheckConstraint(
                condition=Q(topics__contained_by=list(OPERATOR_TOPICS)),
                name="operator_subscription_topics_are_known",
            ),
        ]

    def __str__(self) -> str:
        return f"notices to {self.user}"


class PersonalDelivery(OutgoingEmail):
    """A notice for one person. What goes out as one e-mail is kept with its first row, which the others name."""

    notice = models.ForeignKey(Notice, on_delete=models.CASCADE, related_name="+")
    created_at = models.DateTimeField()
    waits_for = models.CharField(
        max_length=7, choices=NoticeTiming.choices, help_text="The digest, or only the end of quiet hours."
    )
    first = models.ForeignKey("self", on_delete=models.SET_NULL, null=True, related_name="+")

    class Meta:
        abstract = True
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=Q(state__in=NoticeState.values) & Q(waits_for__in=["at-once", "digest"]),
                name="%(class)s_state_is_known",
            ),
            models.CheckConstraint(
                condition=~Q(state__in=["sending", "sent", "drafted"])
                | (Q(sent_at__isnull=False) & ~Q(subject="")),
                name="%(class)s_stays_as_sent",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.notice} to one person"


class NoticeDelivery(PersonalDelivery):
    """For a member who has chosen to get it later than at once."""

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="+")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")

    class Meta(PersonalDelivery.Meta):
        verbose_name_plural = "notice deliveries"
        constraints: ClassVar = [
            *PersonalDelivery.Meta.constraints,
            models.UniqueConstraint(fields=["tenant", "user", "notice"], name="notice_is_delivered_once"),
        ]
        indexes: ClassVar = [
            models.Index("not_before", "id", condition=Q(state="waiting"), name="deliveries_to_send"),
            models.Index("tenant", "user", "created_at", name="deliveries_of_member"),
        ]


class OperatorDelivery(PersonalDelivery):
    """For an operator who subscribed to it. No tenant's column, so that nobody who acts for a tenant can read it."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")

    class Meta(PersonalDelivery.Meta):
        verbose_name_plural = "operator deliveries"
        constraints: ClassVar = [
            *PersonalDelivery.Meta.constraints,
            models.UniqueConstraint(fields=["user", "notice"], name="notice_is_delivered_to_operator_once"),
        ]
        indexes: ClassVar = [
            models.Index(
                "not_before", "id", condition=Q(state="waiting"), name="operator_deliveries_to_send"
            ),
            models.Index("user", "created_at", name="deliveries_of_operator"),
        ]
