"""Credit that tenants buy for their wallets."""

from __future__ import annotations

import uuid
from typing import ClassVar

from django.db import models
from django.db.models import Q

from billing.models.wallets import Wallet
from portal.core.audit import track
from portal.core.tenants.models import Tenant


@track(personal=["requested_by"])
class TopUp(models.Model):
    """Credit that somebody buys for a wallet; granted once its money has come, under the name of its payment."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    wallet = models.ForeignKey(Wallet, on_delete=models.PROTECT, related_name="top_ups")
    amount = models.BigIntegerField(help_text="Smallest units of the wallet's currency.")
    created_at = models.DateTimeField()
    requested_by = models.CharField(max_length=200)
    crossing = models.BigIntegerField(
        null=True,
        help_text="Of an automatic one: the newest entry of the wallet when it fell below its mark.",
    )

    class Meta:
        indexes: ClassVar = [models.Index(fields=["wallet", "-created_at"], name="top_ups_of_wallet")]
        constraints: ClassVar = [
            models.CheckConstraint(condition=Q(amount__gt=0), name="top_up_is_not_nothing"),
            models.UniqueConstraint(fields=["wallet", "crossing"], name="top_up_is_made_once_per_crossing"),
        ]

    def __str__(self) -> str:
        return f"top-up of {self.wallet}"


@track(personal=["set_by"])
class AutomaticTopUp(models.Model):
    """That a wallet is topped up from the saved card when it falls below a mark. Amounts in its smallest units."""

    wallet = models.OneToOneField(Wallet, on_delete=models.PROTECT, related_name="automatic")
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    active = models.BooleanField(default=True)
    threshold = models.BigIntegerField(
        help_text="The mark: nothing is done while the balance is at or above it."
    )
    amount = models.BigIntegerField(help_text="Of each top-up.")
    monthly_limit = models.BigIntegerField(
        help_text="Of all of them in a calendar month of the tenant's zone."
    )
    set_at = models.DateTimeField(help_text="What was refused before is forgotten then.")
    set_by = models.CharField(max_length=200)

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(condition=Q(amount__gt=0), name="automatic_top_up_is_not_nothing"),
            models.CheckConstraint(condition=Q(threshold__gte=0), name="automatic_top_up_has_a_threshold"),
            models.CheckConstraint(
                condition=Q(monthly_limit__gte=models.F("amount")), name="month_has_room_for_a_top_up"
            ),
        ]

    def __str__(self) -> str:
        return f"automatic top-up of {self.wallet}"
