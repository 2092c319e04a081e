"""People, the tenants they belong to, and which tenant owned which scheduler account, when."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, ClassVar
from zoneinfo import ZoneInfo

from django.contrib.auth.base_user import BaseUserManager
from django.contrib.auth.models import AbstractUser
from django.contrib.postgres.constraints import ExclusionConstraint
from django.contrib.postgres.fields import ArrayField, RangeOperators
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models
from django.db.models import F, Func, Q, Value
from django.utils.translation import gettext_lazy

from clusters.models import Account
from portal.core.audit import track
from portal.core.tenants.electronic_address import buyer_reference, electronic_address
from portal.excerpt import quoted
from portal.languages import Language


def same(expression: str) -> Func:
    """A scalar as a one-value range, so that GiST can exclude on it without btree_gist."""
    return Func(F(expression), F(expression), Value("[]"), function="int8range")


def validate_zone(name: str) -> None:
    """Refuse a name that is not an IANA time zone."""
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise ValidationError(
            f"{quoted(name)} is not an IANA time zone, such as Europe/Berlin or UTC."
        ) from error


class UserManager(BaseUserManager["User"]):
    """People sign in with their e-mail address; there is no user name."""

    use_in_migrations = True

    def create_user(self, email: str, password: str | None = None, **fields: Any) -> User:
        user = self.model(email=self.normalize_email(email).lower(), **fields)
        user.set_password(password)
        user.save(using=self._db)
        return user

    def create_superuser(self, email: str, password: str | None = None, **fields: Any) -> User:
        return self.create_user(email, password, **{"operator_role": OperatorRole.ADMIN, **fields})


class OperatorRole(models.TextChoices):
    """What an operator may do, in every tenant and on every cluster: `access.OPERATOR_RIGHTS` has the table."""

    SUPPORT = "support", "Support: sees everything, changes nothing"
    FINANCE = "finance", "Finance: tenants, plans, closes, credits, payments"
    CLUSTER = "cluster", "Cluster: clusters, schedulers, imports"
    ADMIN = "admin", "Admin: everything, operators included"


@track(
    exclude=[
        *("password", "last_login", "date_joined", "email", "first_name", "last_name"),
        *("is_staff", "is_superuser"),
    ]
)
class User(AbstractUser):
    """A person. What they may see follows from their memberships, and of operators from their role."""

    username = None  # type: ignore[assignment]  # the e-mail address is the name
    email = models.EmailField("e-mail address", unique=True)
    operator_role = models.CharField(
        max_length=10, choices=OperatorRole.choices, blank=True, help_text="Blank: no operator."
    )
    language = models.CharField(
        max_length=2, choices=Language.choices, blank=True, help_text="Of pages. Blank: the browser's."
    )

    USERNAME_FIELD = "email"
    REQUIRED_FIELDS: ClassVar[list[str]] = []
    objects: ClassVar[UserManager] = UserManager()  # type: ignore[assignment]  # Django's makes users by name

    class Meta(AbstractUser.Meta):
        abstract = False
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=Q(operator_role="", is_staff=False, is_superuser=False)
                | Q(operator_role="admin", is_staff=True, is_superuser=True)
                | Q(operator_role__in=["support", "finance", "cluster"], is_staff=True, is_superuser=False),
                name="user_flags_follow_from_the_operator_role",
            ),
            models.CheckConstraint(
                condition=Q(language__in=["", *Language.values]), name="user_language_is_known"
            ),
        ]

    def __str__(self) -> str:
        return self.email

    def save(self, *args: Any, **options: Any) -> None:
        """Django's flags, which its admin asks for, follow from the role."""
        self.is_staff = bool(self.operator_role)
        self.is_superuser = self.operator_role == OperatorRole.ADMIN
        super().save(*args, **options)


class Corrections(models.TextChoices):
    """Where usage goes that becomes known, or changes, after its invoice was issued."""

    NEXT_INVOICE = "next-invoice", "On the next invoice"
    CREDIT_NOTE = "credit-note", "What was too much on a credit note, what was missing on the next invoice"
    OWN_INVOICE = (
        "own-invoice",
        "What was too much on a credit note, what was missing on an invoice of its own",
    )


class ZeroInvoices(models.TextChoices):
    """What becomes of a period in which nothing was used and nothing is charged."""

    SKIP = "skip", "No invoice"
    ISSUE = "issue", "An invoice of nothing, which is paid at once"


class TaxTreatment(models.TextChoices):
    """How the tax of a tenant's invoices is found."""

    FIXED = "", "At the tax rate given here"
    BY_COUNTRY = "by-country", "By the countries of seller and tenant, and their VAT ids"
    REVERSE_CHARGE = "reverse-charge", "Reverse charge"
    EXEMPT = "exempt", "Exempt, for the reason given here"
    OUTSIDE = "outside", "Outside the scope of tax"


COUNTRY = RegexValidator("^[A-Z]{2}$", "write the two letters of ISO 3166-1, such as DE or US.")
REGION = RegexValidator(
    "^[A-Z0-9]{1,3}$", "write what ISO 3166-2 has behind the country, such as CA for California."
)


@track(personal=["address", "postcode", "city", "email", "electronic_address", "purchase_order"])
class Tenant(models.Model):
    """Who is billed. Its invoices carry copies of what is here, frozen when they are issued."""

    slug = models.SlugField(unique=True, help_text="Slug; never changes.")
    name = models.CharField(max_length=200, help_text="As it stands on invoices.")
    timezone = models.CharField(
        max_length=64,
        default="UTC",
        validators=[validate_zone],
        help_text="IANA zone of its billing periods.",
    )
    anchor_day = models.PositiveSmallIntegerField(
        default=1,
        validators=[MinValueValidator(1), MaxValueValidator(31)],
        help_text="Day of the month on which its periods start; 31 means the last day.",
    )
    language = models.CharField(
        max_length=2,
        choices=Language.choices,
        default=Language.ENGLISH,
        help_text="Of its e-mails and documents; those that are issued keep theirs.",
    )
    address = models.TextField(
        blank=True,
        help_text="Postal address, line by line: without post code and city where they stand below.",
    )
    postcode = models.CharField("post code", max_length=20, blank=True)
    city = models.CharField(max_length=100, blank=True)
    vat_id = models.CharField("VAT id", max_length=40, blank=True)
    email = models.EmailField("billing e-mail", blank=True)
    electronic_address = models.CharField(
        max_length=100,
        blank=True,
        validators=[electronic_address],
        help_text="Where it takes e-invoices, as scheme:identifier, such as 0204:991-01234-44; empty: by its e-mail.",
    )
    buyer_reference = models.CharField(
        max_length=100,
        blank=True,
        validators=[buyer_reference],
        help_text="What the buyer routes its invoices by; of a public buyer in Germany its Leitweg-ID. With one, its "
        "e-invoices are XRechnungen.",
    )
    purchase_order = models.CharField(max_length=100, blank=True)
    tax_rate = models.DecimalField(
        max_digits=6, decimal_places=3, default=0, validators=[MinValueValidator(0)], help_text="Per cent."
    )
    country = models.CharField(
        max_length=2, blank=True, validators=[COUNTRY], help_text="ISO 3166-1, two letters: DE, US."
    )
    region = models.CharField(
        "state", max_length=10, blank=True, help_text="Where the tax depends on it: CA for California."
    )
    tax_treatment = models.CharField(max_length=14, choices=TaxTreatment.choices, blank=True)
    tax_category = models.SlugField(
        max_length=30, default="standard", help_text="Of the rates that its country has."
    )
    tax_reason = models.CharField(
        max_length=300, blank=True, help_text="Stands on invoices: why no tax is charged, with the law."
    )
    payment_terms_days = models.PositiveSmallIntegerField(default=14)
    corrections = models.CharField(
        max_length=12, choices=Corrections.choices, blank=True, help_text="Empty: as the seller does."
    )

    zero_invoices = models.CharField(
        max_length=5, choices=ZeroInvoices.choices, blank=True, help_text="Empty: as the seller does."
    )

    second_factor = models.BooleanField(
        default=False, help_text="Its members need a second factor to sign in: an app, a passkey or a key."
    )
    members_see_own = models.BooleanField(
        default=False,
        help_text="Those with the role member see their own jobs and the totals of their projects alone.",
    )

    only_users: tuple[str, ...] | None = None
    """Whose usage can be read in the tenant's scope; None: everybody's. Of the instance, not stored."""
    scheduler_users: tuple[str, ...] = ()
    """What the person who entered the tenant is called on the clusters. Of the instance, not stored."""

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=Q(zero_invoices__in=["", *ZeroInvoices.values]),
                name="tenant_zero_invoices_are_known",
            ),
            models.CheckConstraint(
                condition=Q(country="") | Q(country__regex="^[A-Z]{2}$"), name="tenant_country_is_two_letters"
            ),
            models.CheckConstraint(
                condition=Q(electronic_address="") | Q(electronic_address__regex=r"^[0-9A-Z]+:\S+$"),
                name="tenant_electronic_address_has_a_scheme",
            ),
            models.CheckConstraint(
                condition=Q(tax_treatment__in=TaxTreatment.values), name="tenant_tax_treatment_is_known"
            ),
            models.CheckConstraint(
                condition=~Q(tax_treatment="exempt") | ~Q(tax_reason=""), name="tenant_exemption_says_why"
            ),
            models.CheckConstraint(
                condition=~Q(tax_treatment="reverse-charge") | (~Q(country="") & ~Q(vat_id="")),
                name="tenant_of_reverse_charge_has_country_and_vat_id",
            ),
            models.CheckConstraint(condition=Q(anchor_day__range=(1, 31)), name="tenant_anchor_is_a_day"),
            models.CheckConstraint(
                condition=Q(language__in=Language.values), name="tenant_language_is_known"
            ),
            models.CheckConstraint(condition=Q(tax_rate__range=(0, 100)), name="tenant_tax_is_a_percentage"),
            models.CheckConstraint(
                condition=Q(corrections__in=["", *Corrections.values]), name="tenant_corrections_are_known"
            ),
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
    """What a member may do; each role includes those below it: `access.ALLOWED` has the table."""

    OWNER = "owner", gettext_lazy("Owner: everything, people included")
    BILLING = "billing", gettext_lazy("Billing: invoices and payment")
    VIEWER = "viewer", gettext_lazy("Viewer: sees all of it, changes nothing")
    MEMBER = "member", gettext_lazy("Member: usage and its cost")


@track(personal=["scheduler_users"])
class Membership(models.Model):
    """One person's role in one tenant, and what they are called on the clusters."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="memberships")
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=10, choices=Role.choices, default=Role.MEMBER)
    scheduler_users = ArrayField(
        models.CharField(max_length=100), default=list, blank=True, help_text="User names of its jobs."
    )
    through = models.CharField(
        max_length=50,
        blank=True,
        help_text="The identity provider whose grants give the role; empty: by hand.",
    )

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

    def validate_constraints(self, exclude: Collection[str] | None = None) -> None:
        """For forms: one owner at a time is left to `ownership.assign`, which ends the present ownership first."""
        super().validate_constraints({*(exclude or ()), "account"})
