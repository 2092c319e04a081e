"""The quotas of a tenant in a configuration file, and in the bodies of the API: how much of what, and who is told."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Self

from billing.models import PlanQuota, PlanVersion, Quota, QuotaAction, QuotaCredits, QuotaEvery, QuotaMeasure
from billing.models.quota_terms import LONGEST_NAME, LONGEST_TEXT, SCOPE
from billing.quotas.plan_quotas import set_plan_quota
from billing.quotas.quotas import Setter, list_quotas, set_quota
from billing.quotas.terms import DEFAULT_THRESHOLDS, QuotaError, QuotaTerms
from billing.rules.quotas import LONGEST_GRACE, LONGEST_WINDOW, SHORTEST_GRACE
from portal.config_file.entries import Entry, Rule, key
from portal.core.tenants.models import Project, Tenant
from portal.excerpt import quoted

Text = Annotated[str, Rule(longest=LONGEST_TEXT)]


class QuotaTermsEntry(Entry, frozen=True, kw_only=True):
    """What quotas of tenants and of plans both say."""

    noun: ClassVar[str] = "quota"
    named_by: ClassVar[str] = "name"
    name: Annotated[str, Rule(longest=LONGEST_NAME)]
    measure: QuotaMeasure
    amount: Decimal
    every: QuotaEvery
    begins: date | None = key(name="from", default=None)
    ends: date | None = key(name="until", default=None)
    hours: Annotated[int, Rule(lowest=1, highest=LONGEST_WINDOW)] | None = None
    unit: Annotated[str, Rule(longest=3)] = ""
    cluster: Text = ""
    queue: Text = ""
    qos: Text = ""
    gpu_model: Text = ""
    credits: QuotaCredits = QuotaCredits.GROSS
    with_paid: bool = False
    thresholds: list[str] = key(default_factory=lambda: [*DEFAULT_THRESHOLDS])
    forecasts: list[str] = key(name="forecast_thresholds", default_factory=list)
    carry_over: Annotated[int, Rule(lowest=0, highest=100)] = 0
    carry_overdraft: bool = False
    repeat_every: Decimal | None = None
    action: QuotaAction = QuotaAction.NOTIFY
    grace_minutes: Annotated[int, Rule(lowest=SHORTEST_GRACE, highest=LONGEST_GRACE)] | None = None
    ends_older: bool = False
    watch: bool = False
    reservation_cap: Decimal | None = None

    @property
    def identity(self) -> str:
        return self.name

    def values(self) -> dict[str, Any]:
        """By field of the terms what the file says."""
        values: dict[str, Any] = {
            field: getattr(self, field)
            for field in QuotaTerms.__dataclass_fields__
            if field not in {"project", "borrows_from", "first_day", "end_day"} and hasattr(self, field)
        }
        lists: dict[str, Any] = {
            field: tuple(values[field])
            for field in ("thresholds", "forecasts", "recipients")
            if field in values
        }
        return {**values, **lists, "first_day": self.begins, "end_day": self.ends}


class PlanQuotaEntry(QuotaTermsEntry, frozen=True, kw_only=True):
    """A quota of a version of a plan, which each of its tenants has."""

    def write(self, version: PlanVersion) -> PlanQuota:
        """Have the version say it; applied again, nothing changes. Raises QuotaError and RuleError."""
        return set_plan_quota(version=version, name=self.name, terms=QuotaTerms(**self.values()))

    def moved(self, back: timedelta) -> Self:
        """With the days of a term so much earlier."""
        return self.replaced(begins=self.begins and self.begins - back, ends=self.ends and self.ends - back)


class QuotaEntry(QuotaTermsEntry, frozen=True, kw_only=True):
    project: Annotated[str, Rule(longest=200)] = ""
    user: Text = ""
    account: Text = ""
    recipients: list[str] = key(default_factory=list)
    cap: Decimal | None = None
    lends: bool = False
    borrows_from: Annotated[str, Rule(longest=LONGEST_NAME)] = ""

    def terms(self, tenant: Tenant) -> QuotaTerms:
        """As the use case takes it. Raises QuotaError where the project is none of the tenant's."""
        own = {"project": self._project(tenant), "borrows_from": self._pool(tenant)}
        return QuotaTerms(**self.values() | own)

    def _pool(self, tenant: Tenant) -> Quota | None:
        if not self.borrows_from:
            return None
        pool = list_quotas(tenant).filter(name=self.borrows_from).first()
        if pool is None:
            raise QuotaError("quota-pool-none", tenant=tenant, pool=quoted(self.borrows_from))
        return pool

    def _project(self, tenant: Tenant) -> Project | None:
        if not self.project:
            return None
        project = tenant.projects.filter(name=self.project).first()
        if project is None:
            raise QuotaError("quota-project", tenant=tenant, project=quoted(self.project))
        return project

    def write(self, tenant: Tenant, *, by: Setter, moment: datetime) -> Quota:
        """Have the quota be so; applied again, nothing changes. Raises QuotaError and RuleError."""
        return set_quota(tenant=tenant, name=self.name, terms=self.terms(tenant), by=by, moment=moment)


def described(row: Quota) -> Mapping[str, Any]:
    """What a list of changes says of it, by its keys in a file."""
    return {
        **terms_described(row),
        "project": row.project and row.project.name,
        "recipients": row.recipients or "",
        "cap": row.cap,
        "lends": "yes" if row.lends else "",
        "borrows_from": row.borrows_from and row.borrows_from.name,
    }


def terms_described(row: Quota | PlanQuota) -> Mapping[str, Any]:
    """As `described`, of what plans have, too."""
    return {
        "measure": f"{row.measure} {row.unit}".strip(),
        "amount": row.amount,
        "every": f"{row.hours} hours, rolling" if row.hours else row.every,
        "from": row.first_day,
        "until": row.end_day,
        **{column: getattr(row, column, "") for column in SCOPE},
        "credits": "" if row.credits == QuotaCredits.GROSS else row.credits,
        "reservation_cap": row.reservation_cap,
        **{
            flag: "yes" if getattr(row, flag) else ""
            for flag in ("with_paid", "carry_overdraft", "ends_older")
        },
        "thresholds": row.thresholds or "",
        "forecast_thresholds": row.forecasts or "",
        "carry_over": f"{row.carry_over} %" if row.carry_over else "",
        "repeat_every": row.repeat_every,
        "action": row.acts_text,
        "grace_minutes": row.grace_minutes,
    }
