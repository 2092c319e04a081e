"""What a quota says, and whether it can be meant: the same for pages, commands, files and the API."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Self

from django.db.models import Q

from billing.models import Plan, Quota, QuotaAction, QuotaCredits, QuotaEvery, QuotaMeasure
from billing.models.quota_terms import LONGEST_TEXT, SCOPE, plain
from billing.quotas.messages import SENTENCES
from billing.rules import quotas as rules
from billing.rules.errors import RuleError
from billing.rules.money import TOKENS, exponent, is_currency
from portal.core.tenants.models import Project, Tenant
from portal.errors import CodedError
from portal.excerpt import quoted

MOST_RECIPIENTS = 20
LONGEST_TERM = timedelta(days=3653)
DEFAULT_THRESHOLDS = ("50%", "80%", "100%")
NOT_OF_ACCOUNTS = ("user", "queue", "qos", "gpu_model")
"""What narrows a quota to a part of accounts: a block of the account would stop others, too."""
OF_JOBS = (QuotaAction.HOLD_JOBS, QuotaAction.END_JOBS)
"""What can be done to the jobs of one user alone."""
WITHIN_BILLING_PERIODS = (QuotaEvery.DAY, QuotaEvery.WEEK, QuotaEvery.ROLLING)
"""No window of these holds a whole billing period, which is what others' invoices are known by."""


class QuotaError(CodedError):
    """A quota cannot be so; the message says why and what to do."""

    sentences = SENTENCES


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaTerms:
    """What a quota says, beside its tenant and name; `unit` "": the tenant's own. Texts of the scope: "" is any."""

    measure: QuotaMeasure
    amount: Decimal
    every: QuotaEvery
    project: Project | None = None
    user: str = ""
    account: str = ""
    cluster: str = ""
    queue: str = ""
    qos: str = ""
    gpu_model: str = ""
    unit: str = ""
    credits: QuotaCredits = QuotaCredits.GROSS
    with_paid: bool = False
    cap: Decimal | None = None
    first_day: date | None = None
    end_day: date | None = None
    hours: int | None = None
    thresholds: tuple[str, ...] = DEFAULT_THRESHOLDS
    forecasts: tuple[str, ...] = ()
    carry_over: int = 0
    carry_overdraft: bool = False
    repeat_every: Decimal | None = None
    recipients: tuple[str, ...] = field(default_factory=tuple)
    action: QuotaAction = QuotaAction.NOTIFY
    grace_minutes: int | None = None
    ends_older: bool = False
    watch: bool = False
    reservation_cap: Decimal | None = None
    lends: bool = False
    borrows_from: Quota | None = None  # a pool of the tenant's

    @classmethod
    def of(cls, quota: Quota) -> Self:
        """As the quota has them now."""
        values = {name: getattr(quota, name) for name in cls.__dataclass_fields__}
        lists = {name: tuple(values[name]) for name in ("thresholds", "forecasts", "recipients")}
        return cls(**values | lists)

    def checked(self, tenant: Tenant, *, moment: datetime) -> Self:
        """With its unit, and with thresholds as they are kept. Raises QuotaError, or RuleError for a value."""
        terms = self._with_unit(tenant, _currencies(tenant, moment) if self._is_money else [])
        _check_accounts(terms, tenant)
        return replace(terms, recipients=_member_emails(terms.recipients, tenant))

    def checked_of_plan(self, plan: Plan) -> Self:
        """As `checked`, of whoever is on the plan. What a tenant alone has is refused: projects, people, accounts."""
        if self.project or self.user or self.account or self.recipients or self.cap is not None:
            raise QuotaError("quota-of-plan-narrow")
        if self.lends or self.borrows_from:
            raise QuotaError("quota-of-plan-pool")
        if self._is_money and plan.currency == TOKENS:
            raise QuotaError("quota-unit-tokens")
        return self._with_unit(plan, [plan.currency] if self._is_money else [])

    @property
    def _is_money(self) -> bool:
        return self.measure == QuotaMeasure.MONEY

    def _with_unit(self, payer: Tenant | Plan, currencies: list[str]) -> Self:
        terms = replace(self, unit=self._unit(payer, currencies), grace_minutes=self._grace())
        _check_scope(terms)
        _check_period(terms)
        _check_loans(terms)
        if terms.reservation_cap is not None and terms.reservation_cap <= 0:
            raise QuotaError("quota-reservation-cap")
        for amount in (terms.amount, terms.cap, terms.reservation_cap):
            if amount is not None:
                _check_amount(amount, terms.unit)
        if terms.cap is not None and terms.amount > terms.cap:
            raise QuotaError("quota-below-cap", amount=plain(terms.amount), cap=plain(terms.cap))
        if terms.repeat_every is not None and not 0 < terms.repeat_every <= rules.LARGEST:
            raise QuotaError("quota-repeat", most=rules.LARGEST)
        repeats = terms.repeat_every is not None
        return replace(
            terms,
            thresholds=_kept(terms.thresholds, repeats=repeats),
            forecasts=_kept(terms.forecasts, what="forecast"),
        )

    def _grace(self) -> int | None:
        if self.action != QuotaAction.END_JOBS:
            if self.grace_minutes is not None or self.ends_older:
                raise QuotaError("quota-grace-elsewhere")
            return None
        minutes = rules.GRACE if self.grace_minutes is None else self.grace_minutes
        if not rules.SHORTEST_GRACE <= minutes <= rules.LONGEST_GRACE:
            raise QuotaError("quota-grace", least=rules.SHORTEST_GRACE, most=rules.LONGEST_GRACE)
        return minutes

    def _unit(self, payer: Tenant | Plan, currencies: list[str]) -> str:
        if self.measure == QuotaMeasure.GPU_HOURS:
            if self.unit:
                raise QuotaError("quota-unit-elsewhere")
            return ""
        if self.measure == QuotaMeasure.CREDITS:
            unit = self.unit or TOKENS
            if unit != TOKENS and not is_currency(unit):
                raise QuotaError("quota-unit-unknown", unit=quoted(unit))
            return unit
        if self.unit == TOKENS:
            raise QuotaError("quota-unit-tokens")
        if self.unit and not is_currency(self.unit):
            raise RuleError("currency-unknown", currency=quoted(self.unit))
        if not currencies and not self.unit:
            raise QuotaError("quota-no-currency", tenant=payer)
        if self.unit and currencies and self.unit not in currencies:
            raise QuotaError("quota-currency", unit=self.unit, tenant=payer, currency=currencies[0])
        return self.unit or currencies[0]


def _check_scope(terms: QuotaTerms) -> None:
    if any(len(getattr(terms, column)) > LONGEST_TEXT for column in SCOPE):
        raise QuotaError("quota-scope-long")
    is_narrowed = terms.project is not None or any(getattr(terms, column) for column in SCOPE)
    is_money = terms.measure == QuotaMeasure.MONEY
    in_amounts = is_money or (terms.credits == QuotaCredits.PAID and terms.measure == QuotaMeasure.CREDITS)
    if terms.credits != QuotaCredits.GROSS and (is_narrowed or not in_amounts):
        raise QuotaError("quota-credits-scope")
    if terms.with_paid and (is_narrowed or not is_money):
        raise QuotaError("quota-paid-scope")
    if terms.with_paid and terms.every in WITHIN_BILLING_PERIODS:
        raise QuotaError("quota-paid-period")
    of_jobs = ("user",) if terms.action in OF_JOBS else ()
    parts = [column for column in NOT_OF_ACCOUNTS if column not in of_jobs]
    if terms.action != QuotaAction.NOTIFY and any(getattr(terms, column) for column in parts):
        raise QuotaError("quota-action-scope")
    if terms.watch and terms.action == QuotaAction.NOTIFY:
        raise QuotaError("quota-watch")


def _check_accounts(terms: QuotaTerms, tenant: Tenant) -> None:
    """Refuse accounts that the tenant never had and is not to have: of them nothing is ever counted. One query."""
    if not (terms.account or terms.cluster):
        return
    named = Q(account__name=terms.account) if terms.account else Q(account__cluster__name=terms.cluster)
    owned = tenant.ownerships.filter(named).values_list("account__cluster__name", "project").distinct()
    names = {"tenant": tenant, "account": quoted(terms.account), "cluster": quoted(terms.cluster)}
    if not owned:
        raise QuotaError("quota-account" if terms.account else "quota-cluster", **names)
    if terms.account and not any(
        terms.cluster in ("", cluster) and (terms.project is None or terms.project.pk == project)
        for cluster, project in owned
    ):
        raise QuotaError("quota-account-elsewhere", **names)


def _check_loans(terms: QuotaTerms) -> None:
    if not terms.lends and terms.borrows_from is None:
        return
    has_scope = any(getattr(terms, column) for column in SCOPE)
    if terms.lends:
        is_plain = terms.credits == QuotaCredits.GROSS and not (terms.with_paid or terms.forecasts)
        acts = terms.action != QuotaAction.NOTIFY or terms.reservation_cap is not None
        if has_scope or terms.project or acts or terms.borrows_from or not is_plain:
            raise QuotaError("quota-pool")
    elif has_scope or terms.project is None:
        raise QuotaError("quota-borrows-scope")
    if terms.carry_over or terms.carry_overdraft:
        raise QuotaError("quota-pool-carries")


def _check_period(terms: QuotaTerms) -> None:
    first, end = terms.first_day, terms.end_day
    if terms.every == QuotaEvery.TERM:
        if first is None or end is None or not first < end <= first + LONGEST_TERM:
            raise QuotaError("quota-term")
    elif first is not None or end is not None:
        raise QuotaError("quota-term-elsewhere")
    if terms.every == QuotaEvery.ROLLING:
        if terms.hours is None or not 0 < terms.hours <= rules.LONGEST_WINDOW:
            raise QuotaError("quota-window", most=rules.LONGEST_WINDOW)
        if terms.forecasts:
            raise QuotaError("quota-forecast-rolling")
    elif terms.hours is not None:
        raise QuotaError("quota-window-elsewhere")
    if not 0 <= terms.carry_over <= 100:
        raise QuotaError("quota-carry-over", percent=terms.carry_over)
    if (terms.carry_over or terms.carry_overdraft) and terms.every in (QuotaEvery.TERM, QuotaEvery.ROLLING):
        raise QuotaError("quota-carry-elsewhere")


def _member_emails(recipients: tuple[str, ...], tenant: Tenant) -> tuple[str, ...]:
    """Members as they are written here: what somebody else is called names nobody."""
    emails = tuple(dict.fromkeys(email.strip().lower() for email in recipients if email.strip()))
    if len(emails) > MOST_RECIPIENTS:
        raise QuotaError("quota-recipients-many", most=MOST_RECIPIENTS)
    if emails:
        members = {*tenant.memberships.values_list("user__email", flat=True)}
        for email in emails:
            if email not in members:
                raise QuotaError("quota-recipient", email=quoted(email), tenant=tenant)
    return emails


def _check_amount(amount: Decimal, unit: str) -> None:
    if not 0 <= amount <= rules.LARGEST:
        raise QuotaError("quota-amount-range", most=rules.LARGEST, amount=plain(amount))
    places = exponent(unit) if unit else rules.GPU_HOUR_PLACES
    if -int(amount.normalize().as_tuple().exponent) > places:
        raise QuotaError(
            "quota-amount-decimals", amount=plain(amount), unit=unit or "a GPU-hour", places=places
        )


def _kept(texts: tuple[str, ...], *, repeats: bool = False, what: str = "threshold") -> tuple[str, ...]:
    return tuple(one.text for one in rules.read_thresholds(texts, repeats=repeats, what=what))


def _currencies(tenant: Tenant, moment: datetime) -> list[str]:
    """Of the plan that the tenant is on, and of those that it will be on, in order."""
    plans = Plan.objects.filter(subscriptions__tenant=tenant).exclude(subscriptions__until__lte=moment)
    listed = plans.order_by("subscriptions__since").values_list("currency", flat=True)
    return [currency for currency in dict.fromkeys(listed) if currency != TOKENS]
