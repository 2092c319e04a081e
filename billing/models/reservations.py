"""Reservations: what a job that waits or runs may still come to, set aside of quotas and wallets."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db import models
from django.db.models import F, Q

from billing.models.quotas import Quota
from billing.models.wallets import Wallet
from clusters.models import Cluster
from portal.core.tenants.models import Project, Tenant

LONGEST_KEY = 200
NUMBER: dict[str, Any] = {"max_digits": 30, "decimal_places": 12}


class ReservationEnd(models.TextChoices):
    """Why a reservation stands no more."""

    RELEASED = "released", "Released by whoever placed it"
    ENDED = "ended", "Its job ended"
    NEVER_CAME = "never-came", "No job came for it"
    VANISHED = "vanished", "Its job was not seen for a day"


LAPSED = (ReservationEnd.NEVER_CAME, ReservationEnd.VANISHED)
"""Ends that nobody asked for, and that are told."""


class Reservation(models.Model):
    """The worst case of one job, or of one array: its time limit times its shape. It shrinks as the job runs.

    It names no user: a job's record says whose it is.
    """

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+", db_index=False)
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+", db_index=False)
    cluster = models.ForeignKey(Cluster, on_delete=models.PROTECT, related_name="+", db_index=False)
    key = models.CharField(max_length=LONGEST_KEY, help_text="One stands under it at a time.")
    job_id = models.CharField(max_length=LONGEST_KEY, blank=True, help_text="Empty: not known yet.")
    account = models.TextField()
    gpus = models.IntegerField(help_text="Of one task.")
    seconds = models.IntegerField(help_text="The time limit of one task.")
    tasks = models.IntegerField(default=1, help_text="Of an array; 1 for a plain job.")
    at_once = models.IntegerField(
        default=1, help_text="So many tasks are held: all, or as many as run at once."
    )
    shape = models.CharField(max_length=64, help_text="SHA-256 of all that was asked for.")
    runs_after = models.BigIntegerField(
        help_text="Runs of its job that ended by this UTC epoch second are others."
    )
    placed_at = models.DateTimeField()
    expires_at = models.DateTimeField(null=True, help_text="Unless a job comes for it; empty: it came.")
    released_at = models.DateTimeField(null=True)
    end = models.CharField(max_length=10, blank=True, choices=ReservationEnd.choices)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["cluster", "key"],
                condition=Q(released_at=None),
                name="reservation_stands_once_per_key",
            ),
            models.CheckConstraint(
                condition=Q(seconds__gt=0, tasks__gt=0, at_once__gt=0, at_once__lte=F("tasks")),
                name="reservation_is_of_something",
            ),
            models.CheckConstraint(
                condition=Q(released_at=None, end="")
                | Q(released_at__isnull=False, end__in=ReservationEnd.values),
                name="reservation_says_why_it_ended",
            ),
            models.CheckConstraint(
                condition=Q(expires_at=None) | Q(job_id=""), name="reservation_with_a_job_does_not_expire"
            ),
        ]
        indexes: ClassVar = [
            models.Index(fields=["tenant"], condition=Q(released_at=None), name="reservations_standing"),
            models.Index(fields=["tenant", "released_at"], name="reservations_of_tenant"),
            models.Index(fields=["cluster", "key", "-released_at"], name="reservations_of_key"),
            models.Index(fields=["released_at"], name="reservations_by_age"),
        ]

    def __str__(self) -> str:
        return self.key


class ReservedAmount(models.Model):
    """What a reservation sets aside of one quota or of one wallet: what all held tasks come to in so many seconds each.

    What is left of it follows from the seconds that are left. Of a wallet, its hold has that.
    """

    reservation = models.ForeignKey(
        Reservation, on_delete=models.CASCADE, related_name="amounts", db_index=False
    )
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+", db_index=False)
    quota = models.ForeignKey(Quota, on_delete=models.PROTECT, null=True, related_name="+", db_index=False)
    wallet = models.ForeignKey(Wallet, on_delete=models.PROTECT, null=True, related_name="+", db_index=False)
    amount = models.DecimalField(
        **NUMBER, help_text="In the quota's unit, rounded up; of a wallet in its smallest units."
    )
    seconds = models.IntegerField(help_text="Of each task: its time limit, or what the period leaves of it.")
    most = models.DecimalField(
        **NUMBER, null=True, help_text="The quota's cap for one reservation, then; empty: none."
    )

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["reservation", "quota", "wallet"],
                nulls_distinct=False,
                name="reservation_holds_of_each_once",
            ),
            models.CheckConstraint(
                condition=Q(quota=None, wallet__isnull=False) | Q(quota__isnull=False, wallet=None),
                name="reservation_holds_of_a_quota_or_a_wallet",
            ),
            models.CheckConstraint(
                condition=Q(amount__gte=0, seconds__gt=0), name="reserved_amount_is_positive"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.amount} of {self.quota or self.wallet}"


class ReservationRun(models.Model):
    """A run of a reservation's job, or of a task of its array: by its record, so that nobody looks for it again."""

    pk = models.CompositePrimaryKey("reservation_id", "record_id")
    reservation = models.ForeignKey(
        Reservation, on_delete=models.CASCADE, related_name="runs", db_index=False
    )
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+", db_index=False)
    record_id = models.BigIntegerField()

    def __str__(self) -> str:
        return f"{self.record_id}"
