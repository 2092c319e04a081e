"""People who sign up by themselves, what operators say about that, and tenants that ask to leave."""

from __future__ import annotations

from typing import ClassVar

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from billing.models.plans import Plan
from portal.core.audit import track
from portal.core.tenants.models import Tenant, User


class SignUpState(models.TextChoices):
    """How far a sign-up has come."""

    CARD = "card", "Waits for a card"
    APPROVAL = "approval", "Waits for the operator"
    ACTIVE = "active", "Active"
    REFUSED = "refused", "Refused"
    WITHDRAWN = "withdrawn", "Withdrawn"


WAITING = (SignUpState.CARD, SignUpState.APPROVAL)
"""Nothing costs anything yet, and the tenant is on no plan."""


class SignUpQuerySet(models.QuerySet["SignUp"]):
    def waiting(self) -> SignUpQuerySet:
        return self.filter(state__in=WAITING)


@track()
class SignUpPolicy(models.Model):
    """Whether people sign up by themselves, and what they need: one row, or none, which is as if closed."""

    open = models.BooleanField(default=False, help_text="People sign up by themselves.")
    approval = models.BooleanField(default=True, help_text="An operator approves each.")
    card = models.BooleanField(default=False, help_text="Each saves a card first.")
    domain_limit = models.PositiveSmallIntegerField(
        default=5, help_text="Sign-ups of one e-mail domain within 24 hours; 0: no limit."
    )
    refused_domains = ArrayField(
        models.CharField(max_length=253), default=list, blank=True, help_text="With all domains below them."
    )

    class Meta:
        constraints: ClassVar = [models.CheckConstraint(condition=Q(pk=1), name="sign_up_policy_is_one")]

    def __str__(self) -> str:
        return "open" if self.open else "closed"


@track(personal=["email"])
class SignUp(models.Model):
    """Somebody asks for a tenant of their own on a public plan; the tenant is there, and on the plan once active."""

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="sign_ups")
    plan = models.ForeignKey(Plan, on_delete=models.PROTECT, related_name="+")
    user = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, related_name="sign_ups")
    email = models.EmailField(blank=True, help_text="In lower case; empty once its people are erased.")
    domain = models.CharField(max_length=253, help_text="Of the address.")
    state = models.CharField(max_length=9, choices=SignUpState.choices)
    approval = models.BooleanField(help_text="An operator decides, as the policy said then.")
    card = models.BooleanField(help_text="A card is needed, as the policy said then.")
    credit = models.BigIntegerField(
        default=0, help_text="Given to begin with, in smallest units of the plan."
    )
    asked_at = models.DateTimeField()
    decided_at = models.DateTimeField(null=True)
    decided_by = models.CharField(max_length=254, blank=True, help_text="Empty: nobody had to.")
    reason = models.CharField(max_length=500, blank=True, help_text="Of a refusal; the person reads it.")

    objects: ClassVar = SignUpQuerySet.as_manager()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["user"], condition=Q(state__in=WAITING), name="person_has_one_sign_up_waiting"
            ),
            models.UniqueConstraint(fields=["tenant"], name="tenant_has_one_sign_up"),
            models.CheckConstraint(condition=Q(state__in=SignUpState.values), name="sign_up_state_is_known"),
            models.CheckConstraint(
                condition=Q(state__in=WAITING, decided_at=None)
                | (~Q(state__in=WAITING) & Q(decided_at__isnull=False)),
                name="sign_up_is_decided_or_waits",
            ),
            models.CheckConstraint(
                condition=~Q(state="refused") | (~Q(reason="") & ~Q(decided_by="")),
                name="sign_up_refusal_has_author_and_reason",
            ),
            models.CheckConstraint(
                condition=Q(credit=0) | Q(credit__gt=0, state="active"),
                name="sign_up_credit_is_of_active_ones",
            ),
        ]
        indexes: ClassVar = [models.Index("domain", "asked_at", name="sign_ups_of_domain")]

    def __str__(self) -> str:
        return f"{self.tenant} on {self.plan}"

    @property
    def currency(self) -> str:
        """Of the plan, and so of the credit."""
        return self.plan.currency


@track(personal=["asked_by", "reason"])
class Departure(models.Model):
    """An owner asks that the tenant leaves from a day on; an operator carries it out, or the owner takes it back."""

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="departures")
    leaves_on = models.DateField(help_text="The first day without service, in the tenant's zone.")
    reason = models.CharField(max_length=500, blank=True)
    asked_by = models.CharField(max_length=254)
    asked_at = models.DateTimeField()
    withdrawn_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True, help_text="When an operator ended its accounts and its plan.")

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["tenant"],
                condition=Q(withdrawn_at=None, ended_at=None),
                name="tenant_has_one_open_departure",
            ),
            models.CheckConstraint(
                condition=Q(withdrawn_at=None) | Q(ended_at=None), name="departure_ends_in_one_way"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.tenant} on {self.leaves_on}"
