"""What is issued without a look, and what was beyond that: it waits until an operator has decided."""

from __future__ import annotations

from typing import ClassVar

from django.core.validators import MinValueValidator
from django.db import models
from django.db.models import Q

from billing.models.rated import BillingPeriod
from portal.core.audit import track
from portal.core.tenants.models import Tenant


class ApprovalMetric(models.TextChoices):
    """By what an invoice can be unlike the usual."""

    USUAL = "times-usual", "Times the mean of the last three invoices"
    LINES = "lines", "Lines"
    TOTAL = "total", "Total, with tax"


@track()
class ApprovalLimit(models.Model):
    """Up to where an invoice is issued without a look: of one tenant, or of all without such a bound of their own."""

    tenant = models.ForeignKey(
        Tenant,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="approval_limits",
        help_text="Empty: of every tenant that has no such bound of its own.",
    )
    metric = models.CharField(max_length=12, choices=ApprovalMetric.choices)
    currency = models.CharField(max_length=3, blank=True, help_text="Of a total; empty otherwise.")
    limit = models.DecimalField(
        max_digits=20,
        decimal_places=3,
        validators=[MinValueValidator(0)],
        help_text="What lies on it is still issued. 0: no bound.",
    )

    class Meta:
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["tenant", "metric", "currency"],
                nulls_distinct=False,
                name="approval_limit_is_set_once",
            ),
            models.CheckConstraint(condition=Q(limit__gte=0), name="approval_limit_is_not_negative"),
            models.CheckConstraint(
                condition=Q(metric__in=ApprovalMetric.values), name="approval_limit_metric_is_known"
            ),
            models.CheckConstraint(
                condition=(Q(metric="total") & ~Q(currency="")) | (~Q(metric="total") & Q(currency="")),
                name="approval_limit_of_a_total_has_a_currency",
            ),
        ]

    def __str__(self) -> str:
        limit_text = f"{self.limit.normalize():f} {self.currency}".strip()
        return f"{self.tenant or 'everyone'}: {self.get_metric_display()} {limit_text}"


class Decision(models.TextChoices):
    """What became of an invoice held for approval."""

    WAITING = "waiting", "Waiting for approval"
    APPROVED = "approved", "Approved"
    REFUSED = "refused", "Refused"


@track()
class PendingApproval(models.Model):
    """That a period's invoice was beyond its bounds: the figures that were looked at, and who decided what, when, why.

    An approval holds up to these figures. Beyond them the invoice waits again.
    """

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    period = models.OneToOneField(BillingPeriod, on_delete=models.PROTECT, related_name="approval")
    state = models.CharField(max_length=8, choices=Decision.choices, default=Decision.WAITING)
    reason = models.TextField(help_text="Which bounds it is beyond.")
    currency = models.CharField(max_length=3)
    total = models.BigIntegerField(help_text="Minor units, with tax: of all that the close would bill.")
    lines = models.PositiveIntegerField()
    since = models.DateTimeField(help_text="When a close held it for approval with these figures.")
    decided_by = models.CharField(max_length=200, blank=True, help_text="Who decided; empty while it waits.")
    decision_reason = models.TextField(blank=True)
    decided_at = models.DateTimeField(null=True)

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=Q(state="waiting", decided_by="", decision_reason="", decided_at__isnull=True)
                | (
                    Q(state__in=["approved", "refused"], decided_at__isnull=False)
                    & ~Q(decided_by="")
                    & ~Q(decision_reason="")
                ),
                name="approval_has_author_and_reason",
            )
        ]

    def __str__(self) -> str:
        return f"{self.tenant}, {self.period.start:%Y-%m-%d}: {self.get_state_display()}"
