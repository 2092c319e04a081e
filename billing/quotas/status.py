"""How quotas stand, as pages, commands, the API and notices say it: all of the one figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction

from django.db.models import Exists
from django.utils.translation import gettext as _

from billing.models import PlanQuota, Quota, QuotaCredits, QuotaEvery, QuotaMeasure, UsageSeries
from billing.quotas import figures
from billing.quotas.figures import NOTHING_READ, Figure, FigureInputs
from billing.quotas.terms import NOT_OF_ACCOUNTS
from billing.rules import quotas as rules
from billing.rules.formatting import grouped, money_text
from billing.rules.money import Money, rounded_text
from billing.rules.quotas import QuotaState
from portal.core.tenants.models import Tenant


@dataclass(frozen=True, slots=True)
class QuotaStatus:
    """A quota and its figure at a moment."""

    quota: Quota
    figure: Figure

    @property
    def amount(self) -> Fraction:
        """What may be used in the period: the quota's amount, and what is carried over."""
        return self.figure.amount(self.quota)

    @property
    def left(self) -> Fraction:
        """What may still be used, borrowed too, and is not reserved; below zero where more was."""
        figure = self.figure
        return figure.limit(self.quota) - figure.promised - figure.used - figure.reserved

    @property
    def borrows(self) -> Fraction:
        """Of a quota with a pool: what it has used of that."""
        used = self.figure.used - self.amount if self.quota.borrows_from_id is not None else Fraction(0)
        return max(used, Fraction(0))

    @property
    def state(self) -> QuotaState:
        return rules.state(
            self.figure.used,
            amount=self.amount,
            limit=self.figure.limit(self.quota),
            thresholds=self.quota.thresholds,
            overdrawn=self.figure.is_overdrawn(self.quota),
        )

    @property
    def percent(self) -> Fraction | None:
        return rules.share(self.figure.used, self.amount)

    @property
    def resets_at(self) -> datetime | None:
        """When its next period begins; None of a rolling window, and of a term, which ends."""
        if self.quota.every in (QuotaEvery.ROLLING, QuotaEvery.TERM):
            return None
        return self.figure.window.end

    def is_open_at(self, moment: datetime) -> bool:
        """False of a term that is over or has not begun; all others have a period at any moment."""
        window = self.figure.window
        return self.quota.every != QuotaEvery.TERM or window.start <= moment < window.end

    @property
    def next_level(self) -> Fraction | None:
        """The figure at which the next threshold is reached."""
        return rules.next_level(
            self.figure.used,
            amount=self.amount,
            thresholds=self.quota.thresholds,
            repeat_every=self.quota.repeat_every,
        )

    def text(self, value: Fraction | Decimal) -> str:
        """In the quota's unit, for people."""
        return amount_text(value, self.quota.unit)


def load_statuses(
    rows: Sequence[Quota], *, moment: datetime, inputs: FigureInputs = NOTHING_READ
) -> list[QuotaStatus]:
    """Of each, in order; rows have their tenant and project loaded."""
    by_quota = figures.load_figures(rows, moment=moment, inputs=inputs)
    return [QuotaStatus(row, by_quota[row.pk]) for row in rows]


def amount_text(value: Fraction | Decimal, unit: str) -> str:
    """`$1,250.00`, `12.5 GPU-hours` or `40 tokens`; rounded, where it is shown."""
    if unit:
        return money_text(Money(Fraction(value), unit).rounded())
    hours = grouped(rounded_text(Fraction(value), rules.GPU_HOUR_PLACES))
    return _("{hours} GPU-hours").format(hours=hours)


def plain_text(value: Fraction | Decimal, unit: str) -> str:
    """As `amount_text`, for programs: the bare number."""
    return Money(Fraction(value), unit).rounded().text if unit else rounded_text(Fraction(value), 6)


def counts_sentence(quota: Quota) -> str:
    """What is counted, in one sentence."""
    if quota.lends or quota.wallet_id is not None:
        return _of_others(quota)
    if quota.measure == QuotaMeasure.GPU_HOURS:
        return _(
            "Counts the GPU-hours that jobs held, free ones too; a MIG slice counts as its part of a GPU."
        )
    if quota.measure == QuotaMeasure.CREDITS:
        if quota.credits == QuotaCredits.PAID:
            return _(
                "Counts what wallets are charged for use, less what was given or paid in, in the period."
            )
        return _("Counts what wallets are charged for use, before any grant.")
    if not quota.is_of_whole_tenant:
        return _(
            "Counts the cost of use before tax: of each invoice line its part by time, with tiers and included hours, "
            "and without fees and discounts of the plan."
        )
    if quota.credits == QuotaCredits.NET:
        return _(
            "Counts what is billed: what the invoice comes to so far, before tax, with corrections of earlier periods, "
            "less credit that was given in the period."
        )
    if quota.credits == QuotaCredits.PAID:
        return _(
            "Counts what is billed: what the invoice comes to so far, before tax, with corrections of earlier periods, "
            "less credit that was given or paid in, in the period."
        )
    return _("Counts what the invoice comes to so far, before tax: use, fees, and discounts of the plan.")


def _of_others(quota: Quota) -> str:
    """Of what follows from others' figures: budgets that borrow, or a wallet."""
    if quota.lends:
        return _("A pool: counts what its projects used beyond their own budgets.")
    return _(
        "Counts what its wallet lacks: it comes when the wallet falls below zero, and goes with the debt."
    )


def period_text(quota: Quota | PlanQuota) -> str:
    """`each month`, `from 2026-04-01 to 2026-04-30`, `any 168 hours`."""
    if isinstance(quota, Quota) and quota.wallet_id is not None:
        return _("now")
    if quota.every == QuotaEvery.ROLLING:
        return _("any {hours} hours").format(hours=quota.hours)
    if quota.every == QuotaEvery.TERM and quota.first_day and quota.end_day:
        last = date.fromordinal(quota.end_day.toordinal() - 1)
        return _("{first} to {last}").format(first=quota.first_day, last=last)
    names = {
        QuotaEvery.DAY: _("each day"),
        QuotaEvery.WEEK: _("each week"),
        QuotaEvery.MONTH: _("each month"),
        QuotaEvery.QUARTER: _("each quarter"),
        QuotaEvery.YEAR: _("each year"),
        QuotaEvery.BILLING_PERIOD: _("each billing period"),
    }
    return names[QuotaEvery(quota.every)]


def scope_text(quota: Quota | PlanQuota) -> str:
    """`project nlp, cluster rhea`; `everything` where nothing narrows it."""
    project = quota.project if isinstance(quota, Quota) else None
    parts = [f"{_('project')} {project.name or _('(none)')}"] if project else []
    return ", ".join([*parts, *_scope_parts(quota).values()]) or _("everything")


def _scope_parts(quota: Quota | PlanQuota) -> dict[str, str]:
    """By column what narrows it, beside the project."""
    names = {
        "user": _("user"),
        "account": _("account"),
        "cluster": _("cluster"),
        "queue": _("queue"),
        "qos": _("QOS"),
        "gpu_model": _("GPU model"),
    }
    return {
        column: f"{label} {value}" for column, label in names.items() if (value := getattr(quota, column, ""))
    }


def list_unused(quota: Quota) -> list[str]:
    """Of the user, queue, QOS and GPU model that it is of those that no job of its tenant has run with. One query."""
    parts = {column: text for column, text in _scope_parts(quota).items() if column in NOT_OF_ACCOUNTS}
    if not parts:
        return []
    series = UsageSeries.objects.filter(tenant=quota.tenant_id)
    looks = [Exists(series.filter(**{column: getattr(quota, column)})) for column in parts]
    used = Tenant.objects.filter(pk=quota.tenant_id).values_list(*looks).get()
    return [text for text, is_used in zip(parts.values(), used, strict=True) if not is_used]
