"""Where people sign in elsewhere, by OpenID Connect, and what that gives them."""

from __future__ import annotations

from typing import ClassVar

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Lower

from portal.core.audit import track
from portal.core.tenants.models.tenants import Role, Tenant
from portal.core.vault import SealedField

LONGEST_CLAIM = 255


@track(exclude=["client_secret"])
class IdentityProvider(models.Model):
    """One that is conditions who somebody is. It speaks for e-mail addresses of its domains alone."""

    name = models.SlugField(max_length=50, unique=True, help_text="Its name in addresses.")
    title = models.CharField(max_length=60, help_text="As the sign-in page has it.")
    url = models.CharField(max_length=500, help_text="The issuer, below which its configuration is found.")
    client_id = models.CharField(max_length=191)
    client_secret = SealedField(help_text="By which it knows us.")
    domains = ArrayField(models.CharField(max_length=253), help_text="In lower case.")
    scopes = ArrayField(models.CharField(max_length=100), default=list, blank=True, help_text="Further ones.")
    groups_claim = models.CharField(max_length=LONGEST_CLAIM, default="groups")
    tenant_claim = models.CharField(max_length=LONGEST_CLAIM, blank=True)
    operators = models.BooleanField(default=False, help_text="Operators may sign in by it, too.")
    sign_out = models.BooleanField(
        default=False,
        help_text="A person who signed in by it and signs out here is redirected there to sign out, too.",
    )
    enabled = models.BooleanField(default=True)

    def __str__(self) -> str:
        return self.name


@track()
class IdentityGrant(models.Model):
    """Whoever meets all that is said here has the role in the tenant, or a higher one by another grant."""

    provider = models.ForeignKey(IdentityProvider, on_delete=models.CASCADE, related_name="grants")
    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="+")
    role = models.CharField(max_length=10, choices=Role.choices)
    domain = models.CharField(max_length=253, blank=True, help_text="Of a verified e-mail address.")
    claim = models.CharField(max_length=LONGEST_CLAIM, blank=True, help_text="Value of the tenant claim.")
    group = models.CharField(max_length=LONGEST_CLAIM, blank=True, help_text="In the groups claim.")

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["tenant", "provider", "domain", "claim", "group"], name="identity_grant_is_said_once"
            ),
            models.CheckConstraint(condition=Q(role__in=Role.values), name="identity_grant_role_is_known"),
            models.CheckConstraint(
                condition=~Q(domain="", claim="", group=""), name="identity_grant_asks_for_something"
            ),
        ]

    def __str__(self) -> str:
        conditions = (
            ("domain", self.domain),
            ("claim", self.claim),
            ("group", self.group),
        )
        return " and ".join(f"{name} {value}" for name, value in conditions if value)


@track(personal=["email"])
class Exclusion(models.Model):
    """Somebody who left the tenant or was removed: no provider brings them back, an invitation does."""

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="+")
    email = models.EmailField("e-mail address", help_text="In lower case.")

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["tenant", "email"], name="exclusion_is_said_once"),
            models.CheckConstraint(
                condition=Q(email=Lower(F("email"))), name="exclusion_email_is_lower_case"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.email} out of {self.tenant}"
