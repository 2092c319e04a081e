"""People, the tenants they belong to, and which tenant owned which scheduler account, when."""

from __future__ import annotations

from typing import Any, ClassVar
from zoneinfo import ZoneInfo

from django.contrib.auth.base_user import BaseUserManager
from django.contrib.auth.models import AbstractUser
from django.contrib.postgres.constraints import ExclusionConstraint
from django.contrib.postgres.fields import RangeOperators
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import F, Func, Q, Value

from clusters.models import Account
from portal.audit import track


def same(expression: str) -> Func:
    """A scalar as a one-value range, so that GiST can exclude on it without btree_gist."""
    return Func(F(expression), F(expression), Value("[]"), function="int8range")


def known_zone(name: str) -> None:
    """Refuse a name that is not an IANA time zone."""
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise ValidationError(f"{name!r} is not an IANA time zone, such as Europe/Berlin or UTC.") from error


class UserManager(BaseUserManager["User"]):
    """People sign in with their e-mail address; there is no user name."""

    use_in_migrations = True

    def create_user(self, email: str, password: str | None = None, **fields: Any) -> User:
        user = self.model(email=self.normalize_email(email).lower(), **fields)
        user.set_password(password)
        user.save(using=self._db)
        return user

    def create_superuser(self, email: str, password: str | None = None, **fields: Any) -> User:
        return self.create_user(email, password, **{"is_staff": True, "is_superuser": True, **fields})


class User(AbstractUser):
    """A person. What they may see follows from their memberships; staff run the cluster."""

    username = None  # type: ignore[assignment]  # the e-mail address is the name
    email = models.EmailField("e-mail address", unique=True)

    USERNAME_FIELD = "email"
    REQUIRED_FIELDS: ClassVar[list[str]] = []
    objects: ClassVar[UserManager] = UserManager()  # type: ignore[assignment]

    def __str__(self) -> str:
        return self.email


@track()
class Tenant(models.Model):
    """Who is billed. Its invoices carry copies of what is here, frozen when they are issued."""

    slug = models.SlugField(unique=True, help_text="Name in addresses; never changes.")
    name = models.CharField(max_length=200, help_text="As it stands on invoices.")
    timezone = models.CharField(
        max_length=64, default="UTC", validators=[known_zone], help_text="IANA zone of its billing periods."
    )
    anchor_day = models.PositiveSmallIntegerField(
        default=1,
        validators=[MinValueValidator(1), MaxValueValidator(31)],
        help_text="Day of the month on which its periods start; 31 means the last day.",
    )
    address = models.TextField(blank=True, help_text="Postal address, line by line.")
    vat_id = models.CharField("VAT id", max_length=40, blank=True)
    email = models.EmailField("billing e-mail", blank=True)
    purchase_order = models.CharField(max_length=100, blank=True)
    tax_rate = models.DecimalField(
        max_digits=6, decimal_places=3, default=0, validators=[MinValueValidator(0)], help_text="Per cent."
    )
    payment_terms_days = models.PositiveSmallIntegerField(default=14)

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(condition=Q(anchor_day__range=(1, 31)), name="tenant_anchor_is_a_day"),
            models.CheckConstraint(condition=Q(tax_rate__range=(0, 100)), name="tenant_tax_is_a_percentage"),
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def zone(self) -> ZoneInfo:
        return ZoneInfo(self.timezone)


class Project(models.Model):
    """A cost centre within a tenant; invoices have a line for each."""

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="projects")
    name = models.CharField(max_length=200)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["tenant", "name"], name="project_is_named_once_per_tenant")
        ]

    def __str__(self) -> str:
        return self.name


class Role(models.TextChoices):
    """What a member may do; each role includes those below it."""

    OWNER = "owner", "Owner: everything, people included"
    BILLING = "billing", "Billing: invoices and payment"
    MEMBER = "member", "Member: usage and its cost"


@track()
class Membership(models.Model):
    """One person's role in one tenant."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="memberships")
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=10, choices=Role.choices, default=Role.MEMBER)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["user", "tenant"], name="membership_is_held_once"),
            models.CheckConstraint(condition=Q(role__in=Role.values), name="membership_role_is_known"),
        ]

    def __str__(self) -> str:
        return f"{self.user} in {self.tenant}"


@track()
class Ownership(models.Model):
    """`account` belonged to `tenant` during [since, until); empty bounds reach to the beginning or for ever."""

    account = models.ForeignKey(Account, on_delete=models.PROTECT, related_name="ownerships")
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="ownerships")
    project = models.ForeignKey(Project, on_delete=models.PROTECT, related_name="+")
    since = models.DateTimeField(null=True, blank=True)
    until = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints: ClassVar = [
            ExclusionConstraint(
                name="account_has_one_owner_at_a_time",
                expressions=[
                    (same("account"), RangeOperators.OVERLAPS),
                    (Func("since", "until", Value("[)"), function="tstzrange"), RangeOperators.OVERLAPS),
                ],
            ),
            models.CheckConstraint(
                condition=Q(since__isnull=True) | Q(until__isnull=True) | Q(until__gt=F("since")),
                name="ownership_ends_after_it_starts",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.account} → {self.tenant}"
