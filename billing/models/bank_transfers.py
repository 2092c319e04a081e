"""What stood on bank statements, what became of each entry, and money of tenants that pays for nothing yet."""

from __future__ import annotations

from typing import ClassVar

import pgtrigger
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext

from billing.models.payments import Payment
from billing.models.wallets import WalletGrant
from billing.rules.bank_entries import SENTENCES
from billing.rules.money import Money
from portal.core.audit import track
from portal.core.tenants.models import Tenant
from portal.errors import compose


class BankStatement(models.Model):
    """One statement of a file that was taken in. Amounts in minor units of its currency."""

    account = models.CharField(max_length=42, help_text="IBAN, or another number of the account.")
    currency = models.CharField(max_length=3)
    name = models.CharField(max_length=200, help_text="What the bank calls it.")
    form = models.CharField(max_length=4, help_text="camt or csv.")
    opening = models.BigIntegerField(
        null=True, help_text="Empty: it has no balances, so that nobody checked whether it is whole."
    )
    closing = models.BigIntegerField(null=True)
    file = models.CharField(max_length=200)
    sha256 = models.CharField(max_length=64, help_text="Of the file.")
    entries = models.PositiveIntegerField(help_text="That the bank has booked.")
    new = models.PositiveIntegerField(help_text="Of these, not known before.")
    refused = models.PositiveIntegerField(default=0, help_text="Of these, put into quarantine.")
    pending = models.PositiveIntegerField(default=0, help_text="Not booked by the bank yet; not taken in.")
    imported_at = models.DateTimeField()
    imported_by = models.CharField(max_length=200)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["sha256", "account", "name"], name="statement_is_read_once"),
            models.CheckConstraint(
                condition=models.Q(form__in=["camt", "csv"]), name="statement_is_camt_or_csv"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} of {self.account}"


class TransferState(models.TextChoices):
    """What became of an entry of a bank statement."""

    NEW = "new", "To be matched"
    WAITING = "waiting", "Waits for somebody"
    BOOKED = "booked", "Booked"
    RETURNED = "returned", "Went back"
    IGNORED = "ignored", "Ignored"


_FACTS = """
IF (NEW.key, NEW.account, NEW.amount, NEW.currency, NEW.booked_on, NEW.bank_reference, NEW.reversal) IS DISTINCT FROM
   (OLD.key, OLD.account, OLD.amount, OLD.currency, OLD.booked_on, OLD.bank_reference, OLD.reversal) THEN
    RAISE EXCEPTION 'What the bank said of a transfer never changes.';
END IF;
IF (NEW.payer, NEW.payer_iban, NEW.text, NEW.reference, NEW.end_to_end, NEW.raw) IS DISTINCT FROM
   (OLD.payer, OLD.payer_iban, OLD.text, OLD.reference, OLD.end_to_end, OLD.raw)
   AND ((NEW.payer, NEW.payer_iban, NEW.text, NEW.reference, NEW.end_to_end, NEW.raw) <> ('', '', '', '', '', '')
        OR NEW.state IN ('new', 'waiting')
        OR EXISTS (SELECT FROM billing_transferpart p LEFT JOIN billing_archive a ON a.tenant_id = p.tenant_id
                   WHERE p.transfer_id IN (NEW.id, NEW.undoes_id) AND a.erased_at IS NULL)) THEN
    RAISE EXCEPTION 'What the bank said of a transfer never changes: who paid is erased with the tenant.';
END IF;
RETURN NEW;
"""


def _adds_up(transfer: str) -> str:
    return f"""
IF EXISTS (
    SELECT FROM billing_transfer t WHERE t.id = {transfer} AND t.amount > 0 AND
    (SELECT coalesce(sum(p.amount), 0) FROM billing_transferpart p WHERE p.transfer_id = t.id)
    <> CASE WHEN t.state = 'booked' THEN t.amount ELSE 0 END) THEN
    RAISE EXCEPTION 'What transfer % was booked on does not add up to it.', {transfer};
END IF;
RETURN NULL;
"""  # noqa: S608 - a text of a trigger, built from a constant


STATEMENT_TEXTS = ("payer", "payer_iban", "text", "reference", "end_to_end", "raw")
"""What tells of whoever paid: it never changes, so the history has none of it, and is erased with the tenant."""


@track(exclude=STATEMENT_TEXTS)
class Transfer(models.Model):
    """An entry of a bank statement, kept once however many files have it. What the bank said of it never changes."""

    statement = models.ForeignKey(BankStatement, on_delete=models.PROTECT, related_name="transfers")
    key = models.CharField(max_length=300, unique=True, help_text="By account and the bank's name for it.")
    account = models.CharField(max_length=42)
    amount = models.BigIntegerField(help_text="Minor units; below zero: it left the account.")
    currency = models.CharField(max_length=3)
    booked_on = models.DateField()
    payer = models.CharField(max_length=200, blank=True, help_text="The other side.")
    payer_iban = models.CharField(max_length=42, blank=True)
    text = models.TextField(blank=True, help_text="What the payer wrote.")
    reference = models.CharField(max_length=200, blank=True, help_text="In a field of its own.")
    bank_reference = models.CharField(max_length=200, blank=True)
    end_to_end = models.CharField(max_length=200, blank=True)
    reversal = models.BooleanField(default=False)
    raw = models.TextField(blank=True)
    state = models.CharField(max_length=10, choices=TransferState.choices, default=TransferState.NEW)
    reason = models.TextField(blank=True, help_text="Why it waits, is ignored or went back.")
    decided_by = models.CharField(max_length=200, blank=True)
    decided_at = models.DateTimeField(null=True)
    undoes = models.OneToOneField(
        "self",
        on_delete=models.PROTECT,
        null=True,
        related_name="undone_by",
        help_text="The transfer that this one takes back.",
    )

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(condition=~Q(amount=0), name="transfer_is_not_nothing"),
            models.CheckConstraint(
                condition=Q(state__in=TransferState.values), name="transfer_state_is_known"
            ),
            models.CheckConstraint(
                condition=Q(undoes__isnull=True) | Q(amount__lt=0), name="only_what_left_undoes_a_transfer"
            ),
            models.CheckConstraint(
                condition=~Q(state="ignored") | ~Q(reason=""), name="transfer_is_ignored_for_a_reason"
            ),
        ]
        indexes: ClassVar = [
            models.Index(fields=["state", "-booked_on"], name="transfers_by_state"),
            models.Index(fields=["payer_iban"], condition=~Q(payer_iban=""), name="transfers_by_payer"),
        ]
        triggers: ClassVar = [
            pgtrigger.Trigger(
                name="transfer_says_what_the_bank_said",
                when=pgtrigger.Before,
                operation=pgtrigger.Update,
                func=_FACTS,
            ),
            pgtrigger.Trigger(
                name="transfer_is_booked_in_full",
                when=pgtrigger.After,
                operation=pgtrigger.Insert | pgtrigger.Update,
                timing=pgtrigger.Deferred,
                func=_adds_up("NEW.id"),
            ),
            pgtrigger.Protect(name="transfer_is_kept", operation=pgtrigger.Delete),
        ]

    def __str__(self) -> str:
        return f"{Money.from_minor(self.amount, self.currency).text} {self.currency} on {self.booked_on}"


class RefusedEntry(models.Model):
    """An entry that could not be taken in: kept with its reason and its text, once."""

    statement = models.ForeignKey(BankStatement, on_delete=models.PROTECT, related_name="refusals")
    account = models.CharField(max_length=42)
    digest = models.CharField(max_length=64, help_text="Of its text.")
    place = models.CharField(max_length=40)
    code = models.CharField(max_length=60)
    values = models.JSONField(default=dict, help_text="What the sentence of the code is filled in with.")
    raw = models.TextField()
    settled_by = models.CharField(max_length=200, blank=True)
    resolution = models.TextField(blank=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["account", "digest"], name="entry_is_refused_once")
        ]

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}"

    @property
    def reason(self) -> str:
        """The sentence of its code, in the language of whoever reads it."""
        return compose(SENTENCES, self.code, self.values, gettext)


class CreditKind(models.TextChoices):
    """Why a tenant's credit balance changed."""

    RECEIVED = "received", "Paid more than was due"
    OVERPAID = "overpaid", "Paid too much of an invoice"
    USED = "used", "Paid an invoice"
    UNUSED = "unused", "Taken from an invoice again"
    PAID_BACK = "paid-back", "Paid back"
    WITHDRAWN = "withdrawn", "Its transfer went back"


_CREDIT = """
PERFORM FROM tenants_tenant WHERE id = NEW.tenant_id FOR NO KEY UPDATE;
IF (SELECT sum(amount) FROM billing_creditentry WHERE tenant_id = NEW.tenant_id AND currency = NEW.currency) < 0 THEN
    RAISE EXCEPTION 'A credit balance never falls below zero.';
END IF;
RETURN NULL;
"""


class CreditEntry(models.Model):
    """Money of a tenant that pays for nothing yet, as it came and went; entries are only added."""

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="credit_entries")
    currency = models.CharField(max_length=3)
    amount = models.BigIntegerField(help_text="Minor units; below zero: it went.")
    kind = models.CharField(max_length=10, choices=CreditKind.choices)
    at = models.DateTimeField()
    payment = models.OneToOneField(
        Payment, on_delete=models.PROTECT, null=True, related_name="credit_entry", help_text="Of an invoice."
    )
    memo = models.CharField(max_length=300)
    by = models.CharField(max_length=200)

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(condition=~Q(amount=0), name="credit_entry_is_not_nothing"),
            models.CheckConstraint(condition=Q(kind__in=CreditKind.values), name="credit_kind_is_known"),
            models.CheckConstraint(
                condition=Q(kind__in=["overpaid", "used", "unused"], payment__isnull=False)
                | (~Q(kind__in=["overpaid", "used", "unused"]) & Q(payment__isnull=True)),
                name="credit_that_pays_names_its_payment",
            ),
            models.UniqueConstraint(
                fields=["tenant", "currency", "memo"],
                condition=Q(kind="paid-back"),
                name="credit_is_paid_back_once",
            ),
        ]
        triggers: ClassVar = [
            pgtrigger.Protect(name="credit_is_append_only", operation=pgtrigger.Update | pgtrigger.Delete),
            pgtrigger.Trigger(
                name="credit_is_never_below_zero",
                when=pgtrigger.After,
                operation=pgtrigger.Insert,
                timing=pgtrigger.Deferred,
                condition=pgtrigger.Condition("NEW.amount < 0"),
                func=_CREDIT,
            ),
        ]
        indexes: ClassVar = [models.Index(fields=["tenant", "currency"], name="credit_of_tenant")]

    def __str__(self) -> str:
        return f"{self.kind} {Money.from_minor(self.amount, self.currency).text} {self.currency}"


class TransferPart(models.Model):
    """What a part of a transfer was booked on, and a negative one where that was taken back. Never changed."""

    transfer = models.ForeignKey(Transfer, on_delete=models.PROTECT, related_name="parts")
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    amount = models.BigIntegerField(help_text="Minor units.")
    payment = models.OneToOneField(
        Payment, on_delete=models.PROTECT, null=True, related_name="transfer_part", help_text="Of an invoice."
    )
    credit = models.OneToOneField(
        CreditEntry, on_delete=models.PROTECT, null=True, related_name="transfer_part"
    )
    grant = models.ForeignKey(
        WalletGrant,
        on_delete=models.PROTECT,
        null=True,
        related_name="transfer_parts",
        help_text="What a wallet was filled with.",
    )
    undoes = models.OneToOneField("self", on_delete=models.PROTECT, null=True, related_name="undone_by")

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(condition=~Q(amount=0), name="transfer_part_is_not_nothing"),
            models.CheckConstraint(
                condition=Q(payment__isnull=False, credit__isnull=True, grant__isnull=True)
                | Q(payment__isnull=True, credit__isnull=False, grant__isnull=True)
                | Q(payment__isnull=True, credit__isnull=True, grant__isnull=False),
                name="transfer_part_is_booked_on_one_thing",
            ),
            models.CheckConstraint(
                condition=Q(amount__gt=0, undoes__isnull=True) | Q(amount__lt=0, undoes__isnull=False),
                name="negative_part_undoes_another",
            ),
        ]
        triggers: ClassVar = [
            pgtrigger.Protect(
                name="transfer_part_is_append_only", operation=pgtrigger.Update | pgtrigger.Delete
            ),
            pgtrigger.Trigger(
                name="transfer_parts_add_up",
                when=pgtrigger.After,
                operation=pgtrigger.Insert,
                timing=pgtrigger.Deferred,
                func=_adds_up("NEW.transfer_id"),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.amount} of {self.transfer}"
