"""What is done while an invoice is not paid: by which policy, whether it rests, and that it was given up."""

from __future__ import annotations

from typing import ClassVar

import pgtrigger
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from billing.models.invoices import Invoice
from billing.rules.dunning_defaults import LONGEST, Policy, Terms
from billing.rules.money import Money
from portal.core.audit import track
from portal.core.tenants.models import Tenant

DAYS = Q()
for _column in ("past_due", "suspend", "announce", "write_off"):
    DAYS &= Q(**{f"{_column}__isnull": True}) | Q(**{f"{_column}__range": (0, LONGEST)})


@track()
class DunningPolicy(models.Model):
    """A version of the policy of everyone, or of what is different for one tenant. Empty: as the one below says."""

    tenant = models.ForeignKey(
        Tenant,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="dunning_policies",
        help_text="Empty: of everyone.",
    )
    since = models.DateField("from", help_text="It holds for invoices that are due from this day on.")
    emails = models.BooleanField(null=True, blank=True, help_text="No: nothing is written to the tenant.")
    receipts = models.BooleanField(null=True, blank=True, help_text="An e-mail for each payment.")
    payment_links = models.BooleanField(
        null=True, blank=True, help_text="Reminders have a link that pays the invoice without signing in."
    )
    retries = ArrayField(
        models.PositiveSmallIntegerField(),
        null=True,
        blank=True,
        help_text="Days to the next try after each refusal of a card, such as 3, 5, 7.",
    )
    reminders = ArrayField(
        models.PositiveSmallIntegerField(),
        null=True,
        blank=True,
        help_text="Days after due on which reminders go out, such as 3, 10, 21.",
    )
    past_due = models.PositiveSmallIntegerField(
        null=True, blank=True, help_text="Days after due from which it counts as past due."
    )
    suspend = models.PositiveSmallIntegerField(
        null=True, blank=True, help_text="Days after due from which no GPU job starts. 0: never."
    )
    announce = models.PositiveSmallIntegerField(
        null=True, blank=True, help_text="Days before a suspension on which it is announced. 0: it is not."
    )
    write_off = models.PositiveSmallIntegerField(
        null=True, blank=True, help_text="Days after due on which writing it off is proposed. 0: never."
    )

    class Meta:
        verbose_name_plural = "dunning policies"
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["tenant", "since"], nulls_distinct=False, name="dunning_policy_begins_once_a_day"
            ),
            models.CheckConstraint(condition=DAYS, name="days_of_dunning_are_days"),
            models.CheckConstraint(
                condition=Q(past_due__isnull=True) | Q(past_due__gt=0), name="invoice_is_not_late_when_due"
            ),
        ]

    def __str__(self) -> str:
        return f"dunning of {self.tenant or 'everyone'} from {self.since}"

    def terms(self) -> Terms:
        values = {name: getattr(self, name) for name in Policy.__dataclass_fields__}
        lists = {name: tuple(days) for name in ("retries", "reminders") if (days := values[name]) is not None}
        return Terms(since=self.since, **(values | lists))


@track()
class DunningPause(models.Model):
    """Nothing is charged, written or suspended meanwhile: for one invoice, or for all of a tenant's."""

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="dunning_pauses")
    invoice = models.ForeignKey(
        Invoice, on_delete=models.PROTECT, null=True, related_name="pauses", help_text="Empty: all of them."
    )
    until = models.DateField(
        null=True, help_text="The day on which it goes on by itself. Empty: it does not."
    )
    reason = models.TextField()
    by = models.CharField(max_length=200)
    since = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    ended_by = models.CharField(max_length=200, blank=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["tenant", "invoice"],
                condition=Q(ended_at__isnull=True),
                nulls_distinct=False,
                name="dunning_is_paused_once_at_a_time",
            ),
            models.CheckConstraint(condition=~Q(reason="") & ~Q(by=""), name="pause_has_author_and_reason"),
        ]

    def __str__(self) -> str:
        return f"pause of {self.invoice or self.tenant}"


_UNDONE = """
IF OLD.undone_at IS NOT NULL OR NEW.undone_at IS NULL
   OR (NEW.id, NEW.invoice_id, NEW.tenant_id, NEW.amount, NEW."on", NEW.reason, NEW."by")
      IS DISTINCT FROM (OLD.id, OLD.invoice_id, OLD.tenant_id, OLD.amount, OLD."on", OLD.reason, OLD."by") THEN
    RAISE EXCEPTION 'What was written off stays so, or is undone once.';
END IF;
RETURN NEW;
"""


@track()
class WriteOff(models.Model):
    """What of an invoice is not expected any more. It is still owed: what comes all the same counts as paid."""

    invoice = models.ForeignKey(Invoice, on_delete=models.PROTECT, related_name="write_offs")
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    amount = models.BigIntegerField(help_text="Minor units of the invoice's currency: what was due.")
    on = models.DateField()
    reason = models.TextField()
    by = models.CharField(max_length=200)
    undone_at = models.DateTimeField(null=True)
    undone_by = models.CharField(max_length=200, blank=True)
    undo_reason = models.TextField(blank=True)

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["invoice"], condition=Q(undone_at__isnull=True), name="invoice_is_written_off_once"
            ),
            models.CheckConstraint(condition=Q(amount__gt=0), name="something_is_written_off"),
            models.CheckConstraint(
                condition=~Q(reason="") & ~Q(by=""), name="write_off_has_author_and_reason"
            ),
            models.CheckConstraint(
                condition=Q(undone_at__isnull=True, undone_by="", undo_reason="")
                | (Q(undone_at__isnull=False) & ~Q(undone_by="") & ~Q(undo_reason="")),
                name="undone_write_off_has_author_and_reason",
            ),
        ]
        triggers: ClassVar = [
            pgtrigger.Trigger(
                name="write_off_is_undone_once",
                when=pgtrigger.Before,
                operation=pgtrigger.Update,
                func=_UNDONE,
            ),
            pgtrigger.Protect(name="write_off_is_kept", operation=pgtrigger.Delete),
        ]

    def __str__(self) -> str:
        return f"{self.invoice}: {Money.from_minor(self.amount, self.invoice.currency).text} written off"
