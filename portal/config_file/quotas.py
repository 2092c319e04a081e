"""The quotas of a tenant in a configuration file, and in the bodies of the API: how much of what, and who is told."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any, ClassVar

from billing.models import Quota, QuotaAction, QuotaCredits, QuotaEvery, QuotaMeasure
from billing.models.quotas import LONGEST_NAME, LONGEST_TEXT
from billing.quotas.quotas import Setter, set_quota
from billing.quotas.terms import DEFAULT_THRESHOLDS, QuotaError, QuotaTerms
from billing.rules.quotas import LONGEST_WINDOW
from portal.config_file.entries import Entry, Rule, key
from portal.core.tenants.models import Project, Tenant
from portal.excerpt import quoted

Text = Annotated[str, Rule(longest=LONGEST_TEXT)]


class QuotaEntry(Entry, frozen=True, kw_only=True):
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
    project: Annotated[str, Rule(longest=200)] = ""
    user: Text = ""
    account: Text = ""
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
    recipients: list[str] = key(default_factory=list)
    cap: Decimal | None = None
    action: QuotaAction = QuotaAction.NOTIFY
    watch: bool = False

    @property
    def identity(self) -> str:
        return self.name

    def terms(self, tenant: Tenant) -> QuotaTerms:
        """As the use case takes it. Raises QuotaError where the project is none of the tenant's."""
        values: dict[str, Any] = {
            field: getattr(self, field)
            for field in QuotaTerms.__dataclass_fields__
            if field not in {"project", "first_day", "end_day"}
        }
        lists = {field: tuple(values[field]) for field in ("thresholds", "forecasts", "recipients")}
        days = {"first_day": self.begins, "end_day": self.ends}
        return QuotaTerms(**{**values, **lists, **days, "project": self._project(tenant)})

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
