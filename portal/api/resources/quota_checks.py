"""May this job run? Asked before it is submitted; nothing is reserved."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from rest_framework import serializers

from billing.admission.check import check_job
from billing.models import QuotaEvery, QuotaMeasure
from billing.simulation.quotes import QuoteError
from portal.api import parameters
from portal.api.answers import as_json
from portal.api.fields import MomentField
from portal.api.resources.quotes import SHAPE, JobShape, first_cluster, unquotable
from portal.api.views import TenantEndpoint
from portal.ops import quotes
from portal.ops.quotas import check_data


class JobToCheck(JobShape):
    """A job that is about to be submitted; `hours` is its time limit."""

    user = serializers.CharField(
        required=False, max_length=255, help_text="Of the scheduler; else quotas of users do not count it."
    )

    def get_fields(self) -> dict[str, Any]:
        fields: dict[str, Any] = super().get_fields()
        del fields["starts_at"]  # it is asked for now
        return fields


class NeedSerializer(serializers.Serializer[Any]):
    """What the job would use of one quota that counts it. Amounts are decimal strings in `unit`, or GPU-hours."""

    name = serializers.CharField()
    type = serializers.CharField(
        help_text="Stable, one for each kind of scope: quota-used-up-tenant, …-project."
    )
    scope = serializers.CharField()
    measure = serializers.ChoiceField(choices=QuotaMeasure.values)
    unit = serializers.CharField()
    every = serializers.ChoiceField(choices=QuotaEvery.values)
    amount = serializers.CharField(help_text="For the period, with what is carried over.")
    used = serializers.CharField()
    reserved = serializers.CharField(help_text="For other jobs that wait or run.")
    left = serializers.CharField(help_text="Neither used nor reserved; below zero where more was used.")
    needs = serializers.CharField(
        help_text="What the job uses until its time limit, or the end of the period."
    )
    borrows = serializers.CharField(help_text="Of that, what comes from its pool: its own is used first.")
    fits = serializers.BooleanField()
    refuses = serializers.BooleanField(help_text="It does not fit, and the quota acts on such jobs.")
    longest_seconds = serializers.IntegerField(
        allow_null=True,
        help_text="The longest time limit that fits, in whole minutes; null where the job fits.",
    )
    period_start = MomentField()
    period_end = MomentField()
    resets_at = MomentField(allow_null=True, help_text="Null of a rolling window and of a fixed term.")
    ask = serializers.CharField(help_text="Who can raise it.")


class WalletNeedSerializer(serializers.Serializer[Any]):
    """What the job would use of a wallet that pays for it. Amounts are decimal strings in `unit`."""

    wallet = serializers.CharField(help_text="Whose it is: the tenant, a project or a user.")
    unit = serializers.CharField()
    left = serializers.CharField(help_text="What may still be spent or held, overdraft included.")
    needs = serializers.CharField(help_text="What the job uses until its time limit.")
    fits = serializers.BooleanField()
    longest_seconds = serializers.IntegerField(
        allow_null=True, help_text="The longest time limit that fits; null where the job fits."
    )


class JobCheckSerializer(serializers.Serializer[Any]):
    """Whether the job may run now."""

    account = serializers.CharField()
    project = serializers.CharField()
    may_run = serializers.BooleanField()
    message = serializers.CharField(help_text="The same for people, one line a quota.")
    seconds = serializers.IntegerField(help_text="The time limit that was asked for.")
    longest_seconds = serializers.IntegerField(
        allow_null=True, help_text="The longest time limit with which it may run; 0: none; null: it may run."
    )
    unpriced = serializers.ListField(
        child=serializers.CharField(), help_text="Resources that no price covers: their cost is not known."
    )
    quotas = NeedSerializer(many=True, help_text="Those that count the job.")
    wallets = WalletNeedSerializer(many=True, help_text="Those that would pay for it.")


class QuotaChecks(TenantEndpoint):
    """Whether a job may run now, by the quotas that count it. Nothing is kept or reserved."""

    scope = "quotas:read"
    write_scope = "quotas:read"
    whole_tenant = True
    success = 200
    allotment = ("checks", 600)
    serializer = JobCheckSerializer
    request_serializer = JobToCheck
    write_parameters = (parameters.TENANT,)

    def post(self, request: Any) -> HttpResponse:
        del request
        tenant, values = self.needed_tenant(), self.body()
        now = self.moment.replace(microsecond=0)
        fields = {name: str(values[name]) for name in (*SHAPE, "user") if name in values}
        try:
            job = quotes.job_of(fields, started=now)
            cluster = values.get("cluster") or first_cluster(tenant, at=now)
            check = check_job(tenant=tenant, cluster=cluster, job=job, now=now)
        except QuoteError as error:
            raise unquotable(error) from error
        return as_json(self.representation(check_data(check)))
