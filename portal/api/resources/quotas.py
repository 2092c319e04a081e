"""Quotas of a tenant, with what is used of them now: read, set by their name, ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from django.http import HttpResponse
from rest_framework import serializers

from billing.catalog.tenant_lock import lock
from billing.models import Quota, QuotaAction, QuotaSetBy
from billing.quotas import quotas
from billing.quotas.past_periods import PastPeriod, load_past_periods
from billing.quotas.pools import Loan
from billing.quotas.quotas import Setter
from billing.quotas.status import QuotaStatus, counts_sentence, load_statuses, plain_text
from billing.quotas.terms import QuotaError
from billing.rules.errors import RuleError
from billing.rules.money import rounded_text
from billing.rules.quotas import QuotaState
from portal.api.answers import as_json
from portal.api.entry_fields import body_of, entry_of
from portal.api.fields import MomentField
from portal.api.problems import not_found, refused
from portal.api.resources.named_rows import NamedEndpoint, NamedList, OneNamed
from portal.config_file.quotas import QuotaEntry
from portal.core.tenants.models import Tenant

TERMS = (
    *(
        "tenant",
        "name",
        "measure",
        "unit",
        "amount",
        "cap",
        "every",
        "from",
        "until",
        "hours",
        "project",
        "user",
    ),
    *("account", "cluster", "queue", "qos", "gpu_model", "credits", "with_paid", "thresholds"),
    *(
        "forecast_thresholds",
        "repeat_every",
        "carry_over",
        "carry_overdraft",
        "recipients",
        "action",
        "grace_minutes",
        "ends_older",
        "watch",
        "set_by",
        "reservation_cap",
        "lends",
        "borrows_from",
    ),
)
"""What was set: use refuses no change."""
OF_ACCOUNTS = {"quota-account", "quota-account-elsewhere", "quota-cluster"}
"""Refusals that would tell a key of one project which accounts others have."""


class LoanSerializer(serializers.Serializer[Any]):
    """What a project has of a pool. Amounts are decimal strings in the pool's `unit`, or GPU-hours."""

    quota = serializers.CharField(help_text="The quota of the project that borrows.")
    project = serializers.CharField()
    used = serializers.CharField()
    reserved = serializers.CharField(help_text="For jobs that wait or run.")


class QuotaSerializer(serializers.Serializer[Any]):
    """A quota, and how much of it is used. Amounts are decimal strings in `unit`, or GPU-hours."""

    tenant = serializers.CharField()
    name = serializers.CharField()
    measure = serializers.CharField()
    unit = serializers.CharField(help_text="Currency, or unit of the wallet; empty for GPU-hours.")
    amount = serializers.CharField()
    cap = serializers.CharField(allow_null=True, help_text="Owners may set the amount up to this.")
    every = serializers.CharField()
    until = serializers.CharField(allow_null=True, help_text="The first day behind a fixed term.")
    hours = serializers.IntegerField(allow_null=True, help_text="Of a rolling window.")
    project = serializers.CharField(allow_null=True, help_text="Null: all.")
    user = serializers.CharField()
    account = serializers.CharField()
    cluster = serializers.CharField()
    queue = serializers.CharField()
    qos = serializers.CharField()
    gpu_model = serializers.CharField()
    credits = serializers.CharField()
    with_paid = serializers.BooleanField()
    thresholds = serializers.ListField(child=serializers.CharField())
    forecast_thresholds = serializers.ListField(child=serializers.CharField())
    repeat_every = serializers.CharField(allow_null=True)
    carry_over = serializers.IntegerField(
        help_text="What a period leaves to the next, at most so many percent of the amount."
    )
    carry_overdraft = serializers.BooleanField(help_text="What a period overdraws the next one has less.")
    recipients = serializers.ListField(child=serializers.CharField())
    action = serializers.ChoiceField(choices=QuotaAction.values, help_text="While all of it is used.")
    grace_minutes = serializers.IntegerField(
        allow_null=True, help_text="Of `end-jobs`: from the warning to the end of running jobs."
    )
    ends_older = serializers.BooleanField(
        help_text="Of `end-jobs`: also jobs that began before the quota was made."
    )
    watch = serializers.BooleanField(help_text="The action is not done, only written down.")
    set_by = serializers.ChoiceField(
        choices=QuotaSetBy.values,
        help_text="Who set it last; one of the plan changes and ends with the plan alone.",
    )
    reservation_cap = serializers.CharField(
        allow_null=True,
        help_text="One reservation holds at most so much of it; null: all that its job may use.",
    )
    lends = serializers.BooleanField(help_text="A pool: quotas of projects borrow from it.")
    borrows_from = serializers.CharField(
        allow_null=True, help_text="The pool of which it may use more, once its own amount is used."
    )
    borrowed = serializers.CharField(help_text="Of what is used, what it has of its pool.")
    loans = LoanSerializer(many=True, help_text="Of a pool, what each project has of it.")
    counts = serializers.CharField(help_text="What is counted, in a sentence.")
    carried = serializers.CharField(
        help_text="Added to the amount in this period; below zero: what the period before overdrew."
    )
    used = serializers.CharField()
    counted_on = serializers.CharField(help_text="Of it, what running jobs have used since they were rated.")
    reserved = serializers.CharField(
        help_text="What jobs that wait or run may still use in the period, as far as it was reserved."
    )
    left = serializers.CharField(help_text="Neither used nor reserved; below zero where more was used.")
    forecast = serializers.CharField(
        allow_null=True, help_text="Null: it is too early, or a window has no end."
    )
    percent = serializers.CharField(allow_null=True, help_text="Used of the amount; null of an amount of 0.")
    state = serializers.ChoiceField(choices=[state.value for state in QuotaState])
    period_start = MomentField()
    period_end = MomentField()
    resets_at = MomentField(allow_null=True, help_text="Null of a rolling window and of a fixed term.")
    as_of = MomentField(allow_null=True, help_text="Up to when all clusters are read; null: one is not.")

    def get_fields(self) -> dict[str, Any]:
        first = serializers.CharField(allow_null=True, help_text="First day of a fixed term.")
        return {**super().get_fields(), "from": first}


class QuotaPeriodSerializer(serializers.Serializer[Any]):
    """A period of a quota that has ended. Amounts are decimal strings in the quota's unit, or GPU-hours."""

    start = MomentField()
    end = MomentField()
    amount = serializers.CharField(help_text="What might be used, as it was set when the period ended.")
    used = serializers.CharField(help_text="By what is known now: usage that came late is in it.")
    loans = LoanSerializer(many=True, help_text="Of a pool, what each project had of it.")


class QuotaPeriodsSerializer(serializers.Serializer[Any]):
    """The newest first."""

    periods = QuotaPeriodSerializer(many=True)


class QuotaFields(body_of(QuotaEntry, without=("name",))):  # type: ignore[misc]  # those of the file
    """What PUT says of a quota; the address has its name."""


class QuotaEndpoint(NamedEndpoint):
    scope = "quotas:read"
    write_scope = "quotas:write"
    serializer: ClassVar[type[serializers.Serializer[Any]]] = QuotaSerializer

    def in_force(self, tenant: Tenant | None) -> Any:
        return quotas.list_quotas(tenant)

    def data(self, rows: Sequence[Quota]) -> list[dict[str, Any]]:
        return [as_data(one) for one in load_statuses(rows, moment=self.moment.replace(microsecond=0))]

    def terms(self, row: Quota) -> dict[str, Any]:
        return _terms(row)

    @property
    def by(self) -> Setter:
        return Setter.OPERATOR if self.client.tenant is None else Setter.OWNER


class Quotas(NamedList, QuotaEndpoint):
    """The quotas in force, each with what is used of it now."""


class OneQuota(OneNamed, QuotaEndpoint):
    """One quota, by its name. PUT creates or replaces it, DELETE ends it."""

    request_serializer = QuotaFields

    def put(self, request: Any, name: str) -> HttpResponse:
        del request
        # So that nobody changes it between the look at its tag and the change.
        tenant = lock(self.needed_tenant())
        entry = entry_of(QuotaEntry, self.body() | {"name": name}, label=f'quota "{name}"')
        self.match_terms(self.row(name))
        project = self.client.key.project
        if project is not None and (
            entry.project != project.name
            or (self.row(name) is None and _is_taken(tenant, name))
            or entry.borrows_from not in ("", _pool_of(self.row(name)))
        ):
            raise not_found()  # what belongs to another project, or to all, is not there for this key
        try:
            row = entry.write(tenant, by=self.by, moment=self.moment.replace(microsecond=0))
        except (QuotaError, RuleError) as refusal:
            is_elsewhere = refusal.code == "quota-project" or (
                project is not None and refusal.code in OF_ACCOUNTS
            )
            raise (not_found() if is_elsewhere else refused(refusal)) from refusal
        return self.answer(quotas.list_quotas(tenant).get(pk=row.pk))

    def delete(self, request: Any, name: str) -> HttpResponse:
        del request
        lock(self.needed_tenant())
        row = self.row(name)
        self.match_terms(row)
        moment = self.moment.replace(microsecond=0)
        try:
            if row is None or not quotas.end_quota(tenant=row.tenant, name=name, by=self.by, moment=moment):
                raise not_found()
        except QuotaError as refusal:
            raise refused(refusal) from refusal
        return HttpResponse(status=204)


class QuotaPeriods(QuotaEndpoint):
    """The periods of a quota that have ended, the newest first, 24 at most; none of a rolling window or a term."""

    serializer = QuotaPeriodsSerializer

    def get(self, request: Any, name: str) -> HttpResponse:
        del request
        row = self.row(name)
        if row is None:
            raise not_found()
        past = load_past_periods(row, moment=self.moment.replace(microsecond=0))
        return as_json(self.representation({"periods": [_past_data(row, one) for one in past]}))


def _past_data(quota: Quota, one: PastPeriod) -> dict[str, Any]:
    return {
        "start": one.period.start,
        "end": one.period.end,
        "amount": plain_text(one.amount, quota.unit),
        "used": plain_text(one.used, quota.unit),
        "loans": _loans_data(one.loans, quota.unit),
    }


def _loans_data(loans: Sequence[Loan], unit: str) -> list[dict[str, str]]:
    return [
        {
            "quota": loan.quota,
            "project": loan.project,
            "used": plain_text(loan.used, unit),
            "reserved": plain_text(loan.reserved, unit),
        }
        for loan in loans
    ]


def _pool_of(row: Quota | None) -> str:
    return row.borrows_from.name if row is not None and row.borrows_from is not None else ""


def _is_taken(tenant: Any, name: str) -> bool:
    return quotas.list_quotas(tenant).filter(name=name).exists()


def as_data(status: QuotaStatus) -> dict[str, Any]:
    """The fields of the answer."""
    quota, figure = status.quota, status.figure
    return _terms(quota) | {
        "counts": counts_sentence(quota),
        "carried": plain_text(figure.carried, quota.unit),
        "used": plain_text(figure.used, quota.unit),
        "counted_on": plain_text(figure.counted_on, quota.unit),
        "reserved": plain_text(figure.reserved, quota.unit),
        "left": plain_text(status.left, quota.unit),
        "borrowed": plain_text(status.borrows, quota.unit),
        "loans": _loans_data(figure.loans, quota.unit),
        "forecast": None if figure.forecast is None else plain_text(figure.forecast, quota.unit),
        "percent": None if status.percent is None else rounded_text(status.percent, 2),
        "state": status.state.value,
        "period_start": figure.window.start,
        "period_end": figure.window.end,
        "resets_at": status.resets_at,
        "as_of": figure.as_of,
    }


def _terms(quota: Quota) -> dict[str, Any]:
    def number(value: Any) -> str | None:
        return None if value is None else plain_text(value, quota.unit)

    values: dict[str, Any] = {
        "tenant": quota.tenant.slug,
        "amount": number(quota.amount),
        "cap": number(quota.cap),
        "from": quota.first_day and quota.first_day.isoformat(),
        "until": quota.end_day and quota.end_day.isoformat(),
        "project": quota.project.name if quota.project else None,
        "borrows_from": quota.borrows_from.name if quota.borrows_from else None,
        "forecast_thresholds": quota.forecasts,
        "repeat_every": number(quota.repeat_every),
        "reservation_cap": number(quota.reservation_cap),
    }
    return {name: values[name] if name in values else getattr(quota, name) for name in TERMS}
