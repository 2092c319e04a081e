"""Prepaid balances: who has a wallet of which unit, what was granted, used, held and expired.

Double entry: every booking moves amounts between a wallet's balance and where they come from or go
to, and its entries add up to zero. Amounts are whole smallest units of the wallet's unit (cents,
millionths of a token).
"""

from __future__ import annotations

from typing import ClassVar

import pgtrigger
from django.db import models
from django.db.models import F, Q

from billing.rules.wallet import Every
from portal.core.audit import track
from portal.core.tenants.models import Project, Tenant

PAYS_FIRST = 100  # priority of a grant, unless said


class WalletScope(models.TextChoices):
    """Who has a wallet of their own under a scheme."""

    TENANT = "tenant", "The tenant"
    PROJECT = "project", "Each project"
    USER = "user", "Each scheduler user"


class GrantEvery(models.TextChoices):
    """`Every` as a column."""

    ONCE = Every.ONCE.value, "Once, at the opening"
    HOUR = Every.HOUR.value, "Each hour"
    DAY = Every.DAY.value, "Each day"
    MONTH = Every.MONTH.value, "Each billing period"


class CreditsGo(models.TextChoices):
    """Where a credit note goes of what a wallet paid on its invoice."""

    WALLET = "wallet", "Back to the wallet"
    PAY_BACK = "pay-back", "To be paid back"


def _is_one_of(field: str, choices: type[models.TextChoices], name: str) -> models.CheckConstraint:
    return models.CheckConstraint(condition=Q(**{f"{field}__in": choices.values}), name=name)


@track()
class WalletScheme(models.Model):
    """How a tenant's wallets of one unit are opened and filled."""

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="wallet_schemes")
    scope = models.CharField(max_length=10, choices=WalletScope.choices, default=WalletScope.TENANT)
    unit = models.CharField(max_length=3, help_text="ISO 4217 currency, or TOK for tokens.")
    overdraft = models.BigIntegerField(
        default=0, help_text="How far below zero holds and spending may go, in smallest units."
    )
    since = models.DateTimeField(help_text="Its wallets open then: rules give from then on.")
    credits = models.CharField(
        max_length=10,
        choices=CreditsGo.choices,
        default=CreditsGo.WALLET,
        help_text="Where a credit note goes of what a wallet paid on its invoice.",
    )

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["tenant", "unit"], name="tenant_has_one_scheme_per_unit"),
            models.CheckConstraint(condition=Q(overdraft__gte=0), name="overdraft_is_not_negative"),
            _is_one_of("scope", WalletScope, "wallet_scope_is_known"),
            _is_one_of("credits", CreditsGo, "wallet_credits_go_somewhere"),
        ]

    def __str__(self) -> str:
        return f"{self.unit} of {self.tenant}, {self.scope}"


@track()
class GrantRule(models.Model):
    """What each wallet of a scheme is given, and how often."""

    scheme = models.ForeignKey(WalletScheme, on_delete=models.PROTECT, related_name="rules")
    name = models.CharField(max_length=100)
    amount = models.BigIntegerField(help_text="Smallest units.")
    every = models.CharField(max_length=10, choices=GrantEvery.choices)
    begins_at = models.DateTimeField(
        help_text="Given from then on, or from the wallet's opening if that is later."
    )
    ends_at = models.DateTimeField(
        null=True, blank=True, help_text="The first moment at which it gives nothing."
    )
    cap = models.BigIntegerField(null=True, blank=True, help_text="The balance that it fills up to at most.")
    priority = models.PositiveSmallIntegerField(default=PAYS_FIRST, help_text="The lowest burns first.")
    lasts_days = models.PositiveIntegerField(null=True, blank=True, help_text="Empty: it never expires.")

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["scheme", "name"], name="grant_rule_is_named_once"),
            models.CheckConstraint(condition=Q(amount__gt=0), name="grant_rule_gives_something"),
            models.CheckConstraint(
                condition=Q(lasts_days__isnull=True) | Q(lasts_days__gt=0), name="grant_rule_lasts_a_day"
            ),
            models.CheckConstraint(
                condition=Q(ends_at__isnull=True) | Q(ends_at__gt=F("begins_at")),
                name="grant_rule_ends_after_it_begins",
            ),
            _is_one_of("every", GrantEvery, "grant_rule_interval_is_known"),
        ]

    def __str__(self) -> str:
        return self.name


class Wallet(models.Model):
    """One owner's balance. The row is locked by whoever books on it."""

    scheme = models.ForeignKey(WalletScheme, on_delete=models.PROTECT, related_name="wallets")
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="wallets")
    project = models.ForeignKey(Project, on_delete=models.PROTECT, null=True, related_name="+")
    user = models.TextField(blank=True, help_text="The scheduler user; empty: not of one user.")
    unit = models.CharField(max_length=3)
    opened_at = models.DateTimeField()
    balance = models.BigIntegerField(default=0, help_text="Sum of its balance entries; below zero: debt.")
    held = models.BigIntegerField(default=0, help_text="Sum of its standing holds.")

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["scheme", "project", "user"], nulls_distinct=False, name="owner_has_one_wallet"
            ),
            models.CheckConstraint(condition=Q(held__gte=0), name="held_is_not_negative"),
        ]
        indexes: ClassVar = [models.Index(fields=["tenant"], name="wallets_of_tenant")]

    def __str__(self) -> str:
        return self.user or (self.project.name if self.project else self.tenant.name)


class Accrual(models.Model):
    """Up to when a rule's grants were given to a wallet."""

    wallet = models.ForeignKey(Wallet, on_delete=models.PROTECT, related_name="accruals")
    rule = models.ForeignKey(GrantRule, on_delete=models.PROTECT, related_name="+")
    through = models.DateTimeField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["wallet", "rule"], name="accrual_stands_once_per_rule")
        ]

    def __str__(self) -> str:
        return f"{self.rule} through {self.through:%Y-%m-%d %H:%M}"


class GrantKind(models.TextChoices):
    """Where a grant comes from."""

    RULE = "rule", "By the scheme"
    TOP_UP = "top-up", "Top-up"
    GIFT = "gift", "Given by the operator"


class WalletGrant(models.Model):
    """Credit that was given. What is left of it is a projection of the entries."""

    wallet = models.ForeignKey(Wallet, on_delete=models.PROTECT, related_name="grants")
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, db_index=False, related_name="+")
    kind = models.CharField(max_length=10, choices=GrantKind.choices)
    rule = models.ForeignKey(GrantRule, on_delete=models.PROTECT, null=True, db_index=False, related_name="+")
    key = models.CharField(max_length=200, help_text="Given once under it: a rule's instant, a payment.")
    amount = models.BigIntegerField(
        help_text="What was given; of a rule with a cap it follows what becomes known of the use before it."
    )
    left = models.BigIntegerField(help_text="What is left of it.")
    expired = models.BigIntegerField(default=0, help_text="What was left when it expired, and went.")
    priority = models.PositiveSmallIntegerField(default=PAYS_FIRST)
    usable_from = models.DateField()
    expires_on = models.DateField(null=True, help_text="The first day that it does not pay for.")
    granted_at = models.DateTimeField()
    granted_by = models.CharField(max_length=200)
    reason = models.TextField(blank=True)
    gone_on = models.DateField(
        null=True,
        help_text="The day with which its rest left the balance: some days after it expired, and after the invoice "
        "that it waited for.",
    )

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["wallet", "key"], name="grant_is_given_once"),
            models.CheckConstraint(
                condition=Q(amount__gt=0) | Q(amount=0, rule__isnull=False), name="grant_gives_something"
            ),
            models.CheckConstraint(condition=Q(expired__gte=0), name="no_less_than_nothing_expires"),
            models.CheckConstraint(
                condition=Q(left__gte=0, left__lte=F("amount")), name="grant_is_left_in_part"
            ),
            _is_one_of("kind", GrantKind, "grant_kind_is_known"),
        ]
        indexes: ClassVar = [
            models.Index(fields=["wallet"], condition=Q(left__gt=0), name="grants_with_something_left"),
            models.Index(fields=["wallet", "usable_from"], name="grants_by_day"),
        ]

    def __str__(self) -> str:
        return self.key


class EntrySide(models.TextChoices):
    """The account of an entry: the wallet's balance, or where its amounts come from and go to."""

    BALANCE = "balance", "Balance"
    GRANTED = "granted", "Granted"
    USED = "used", "Used"
    SPENT = "spent", "Spent"
    INVOICE = "invoice", "Paid on an invoice"
    EXPIRED = "expired", "Expired"


_BALANCED = """
IF (SELECT sum(amount) FROM billing_walletentry WHERE booking = NEW.booking) <> 0 THEN
    RAISE EXCEPTION 'The entries of booking % do not add up to zero.', NEW.booking;
END IF;
RETURN NULL;
"""


class WalletEntry(models.Model):
    """One side of a booking; entries are only added."""

    booking = models.UUIDField()
    wallet = models.ForeignKey(Wallet, on_delete=models.PROTECT, related_name="entries", db_index=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, db_index=False, related_name="+")
    side = models.CharField(max_length=10, choices=EntrySide.choices)
    grant = models.ForeignKey(
        WalletGrant,
        on_delete=models.PROTECT,
        null=True,
        related_name="entries",
        help_text="Whose balance it is; empty: of none, which is credit above zero and debt below. On the other side "
        "what was given, or expired.",
    )
    amount = models.BigIntegerField(help_text="Signed smallest units.")
    day = models.DateField(
        null=True, help_text="The service day of what was used, or the day on which it was spent."
    )
    invoice = models.ForeignKey(
        "billing.Invoice",
        on_delete=models.PROTECT,
        null=True,
        related_name="wallet_entries",
        db_index=False,
        help_text="What it was paid on, or the credit note that gives it back.",
    )
    at = models.DateTimeField()
    memo = models.TextField(blank=True)

    class Meta:
        verbose_name_plural = "wallet entries"
        constraints: ClassVar = [
            models.CheckConstraint(condition=~Q(amount=0), name="entry_is_not_nothing"),
            models.CheckConstraint(
                condition=Q(grant__isnull=True)
                | Q(side__in=[EntrySide.BALANCE, EntrySide.GRANTED, EntrySide.EXPIRED]),
                name="entry_of_grant_is_its_own",
            ),
            models.CheckConstraint(
                condition=~Q(side__in=[EntrySide.USED, EntrySide.SPENT]) | Q(day__isnull=False),
                name="what_is_used_has_a_day",
            ),
            _is_one_of("side", EntrySide, "entry_side_is_known"),
            models.CheckConstraint(
                condition=~Q(side=EntrySide.INVOICE) | Q(invoice__isnull=False),
                name="what_is_paid_on_an_invoice_names_it",
            ),
        ]
        indexes: ClassVar = [
            models.Index(fields=["wallet", "id"], name="entries_of_wallet"),
            models.Index(fields=["wallet", "at"], name="entries_of_month"),
            models.Index(fields=["wallet", "day"], condition=Q(day__isnull=False), name="entries_of_day"),
            models.Index(
                fields=["wallet", "day"],
                condition=Q(day__isnull=False, grant__isnull=True, side=EntrySide.BALANCE),
                name="entries_of_debt",
            ),
            models.Index(fields=["booking"], name="entries_of_booking"),
            models.Index(fields=["invoice"], condition=Q(invoice__isnull=False), name="entries_of_invoice"),
        ]
        triggers: ClassVar = [
            pgtrigger.Protect(name="entry_is_append_only", operation=pgtrigger.Update | pgtrigger.Delete),
            pgtrigger.Trigger(
                name="booking_adds_up_to_zero",
                when=pgtrigger.After,
                operation=pgtrigger.Insert,
                timing=pgtrigger.Deferred,
                func=_BALANCED,
            ),
        ]

    def __str__(self) -> str:
        return f"{EntrySide(self.side).label}, {self.at:%Y-%m-%d %H:%M}"


class WalletHold(models.Model):
    """Credit set aside for work that is admitted, until it is released."""

    wallet = models.ForeignKey(Wallet, on_delete=models.PROTECT, related_name="holds")
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, db_index=False, related_name="+")
    key = models.CharField(max_length=200, help_text="What it is held for; one hold under it at a time.")
    amount = models.BigIntegerField()
    placed_at = models.DateTimeField()
    released_at = models.DateTimeField(null=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["wallet", "key"], condition=Q(released_at=None), name="hold_is_placed_once_at_a_time"
            ),
            models.CheckConstraint(condition=Q(amount__gt=0), name="hold_is_not_nothing"),
        ]

    def __str__(self) -> str:
        return self.key


class WalletTotal(models.Model):
    """What was charged to wallets, per hour of a service day and owner, kept by rating; divide by share_den and 3600.

    A day is booked as a whole. Its hours are what a grant with a cap looks at.
    """

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, db_index=False, related_name="+")
    unit = models.CharField(max_length=3)
    day = models.DateField()
    hour = models.IntegerField(help_text="Full hours of UTC since 1970, at the one in which it was used.")
    project = models.ForeignKey(Project, on_delete=models.PROTECT, db_index=False, related_name="+")
    user = models.TextField()
    price = models.ForeignKey(
        "billing.Price", on_delete=models.DO_NOTHING, db_index=False, db_constraint=False, related_name="+"
    )
    share_den = models.IntegerField()
    units = models.DecimalField(max_digits=30, decimal_places=0, help_text="Σ units × share_num")
    last_rated_id = models.BigIntegerField(help_text="Newest rated row in this sum.")

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["tenant", "unit", "day", "hour", "project", "user", "price", "share_den"],
                name="wallet_total_is_kept_once",
            )
        ]

    def __str__(self) -> str:
        return f"{self.day}: {self.user} {self.units}"


class WalletDay(models.Model):
    """What is booked on a wallet for a service day: the rounded total of that day."""

    wallet = models.ForeignKey(Wallet, on_delete=models.PROTECT, related_name="days", db_index=False)
    day = models.DateField()
    booked = models.BigIntegerField()

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["wallet", "day"], name="wallet_day_is_booked_once")
        ]

    def __str__(self) -> str:
        return f"{self.day}: {self.booked}"


class WalletBooking(models.Model):
    """How far a tenant's totals are booked on its wallets; `due` is set by rating and taken by the booking."""

    tenant = models.OneToOneField(Tenant, on_delete=models.PROTECT, primary_key=True, related_name="+")
    rated_through = models.BigIntegerField(
        default=0, help_text="Newest rated row, or correction of a price, that is booked."
    )
    due = models.BooleanField(default=True)

    class Meta:
        indexes: ClassVar = [models.Index(fields=["due"], condition=Q(due=True), name="wallets_to_book")]

    def __str__(self) -> str:
        return f"{self.tenant} through {self.rated_through}"
