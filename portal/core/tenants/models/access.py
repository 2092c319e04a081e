"""Who is invited, what people are mailed about their accounts, and which operator looks at which tenant."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import F, Q
from django.db.models.functions import Lower

from portal.core.audit import track
from portal.core.tenants.models.tenants import Role, Tenant


@track(exclude=["generation"], personal=["email", "inviter"])
class Invitation(models.Model):
    """Somebody is asked into a tenant by e-mail. The link is signed, and no row holds it (`invitations.link_token`)."""

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="invitations")
    email = models.EmailField("e-mail address", help_text="In lower case; whoever accepts signs in with it.")
    role = models.CharField(max_length=10, choices=Role.choices)
    inviter = models.CharField(
        max_length=254, help_text="The address of whoever invited, as the mail says it."
    )
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    generation = models.PositiveIntegerField(
        default=1, help_text="Of the link: those before it are not valid."
    )
    accepted_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["tenant", "email"],
                condition=Q(accepted_at=None, revoked_at=None),
                name="invitation_is_open_once_per_address",
            ),
            models.CheckConstraint(condition=Q(role__in=Role.values), name="invitation_role_is_known"),
            models.CheckConstraint(
                condition=Q(email=Lower(F("email"))), name="invitation_email_is_lower_case"
            ),
            models.CheckConstraint(
                condition=Q(accepted_at=None) | Q(revoked_at=None), name="invitation_ends_in_one_way"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.email} to {self.tenant}"


class AccountMail(models.Model):
    """A message to a person about what they may do here: written with the change, sent by a task after it."""

    class Kind(models.TextChoices):
        INVITATION = "invitation", "Invitation"
        JOINED = "joined", "Somebody joined"
        ROLE = "role", "Role in a tenant"
        REMOVED = "removed", "Removed from a tenant"
        OPERATOR = "operator", "Role of an operator"
        APPROVED = "approved", "Sign-up is active"
        REFUSED = "refused", "Sign-up was refused"

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, null=True, related_name="+")
    invitation = models.ForeignKey(Invitation, on_delete=models.CASCADE, null=True, related_name="mails")
    kind = models.CharField(max_length=10, choices=Kind.choices)
    to = models.EmailField()
    values = models.JSONField(default=dict, help_text="What its text is filled in with.")
    created_at = models.DateTimeField()
    due_at = models.DateTimeField(null=True, help_text="Nobody sends it before; null: sent, or given up.")
    attempts = models.PositiveSmallIntegerField(default=0)
    sent_at = models.DateTimeField(null=True)

    class Meta:
        indexes: ClassVar = [
            models.Index("due_at", condition=Q(due_at__isnull=False), name="account_mails_due"),
            models.Index("tenant", "created_at", name="account_mails_of_tenant"),
        ]

    def __str__(self) -> str:
        return f"{self.kind} to {self.to}"


@track()
class SupportView(models.Model):
    """For so long an operator sees a tenant's pages as its owner does, and changes nothing."""

    tenant = models.ForeignKey(Tenant, on_delete=models.CASCADE, related_name="support_views")
    viewer = models.CharField(max_length=254, help_text="The operator's address.")
    reason = models.CharField(max_length=300, help_text="The tenant reads it in its history.")
    begun_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(condition=~Q(reason=""), name="support_view_has_a_reason"),
        ]

    def __str__(self) -> str:
        return f"{self.viewer} at {self.tenant}"
