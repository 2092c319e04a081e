"""What a job of some shape would cost the tenant: the figure of the engine itself."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.http import HttpResponse
from rest_framework import serializers

from billing.simulation.quotes import Quote, QuoteError, quote
from clusters import usage
from portal.api import parameters
from portal.api.answers import as_json
from portal.api.bodies import Body
from portal.api.fields import MomentField, MoneyField, QuantityField, money
from portal.api.problems import ProblemError, bad_request
from portal.api.views import TenantEndpoint
from portal.core.tenants.models import Tenant
from portal.core.tenants.ownership import accounts_of
from portal.ops import quotes
from portal.sentences import sentence

TEXT = ("gpu_model", "mig_profile", "account", "queue", "qos", "priority_class")
SHAPE = (*TEXT, "hours", "gpus", "gpu_share", "cpus", "memory_gib")
FIELDS = {
    "account-not-owned": "account",
    "account-unknown": "account",
    "job-array": "tasks",
    "job-length": "hours",
    "no-account-owned": "cluster",
    "no-hours": "hours",
    "no-share": "gpu_share",
    "too-early": "starts_at",
    "too-late": "starts_at",
}
"""Refusals of what was sent, each with its field; others say it themselves."""


def _quantity(help_text: str, *, required: bool = False) -> serializers.CharField:
    return serializers.CharField(required=required, max_length=20, help_text=help_text)


class JobShape(Body):
    """A job that could be submitted."""

    cluster = serializers.CharField(
        required=False, max_length=100, help_text="Name; else the first on which the tenant has an account."
    )
    starts_at = MomentField(required=False, help_text="Else now.")
    hours = _quantity("How long it runs, such as 1.5.", required=True)
    gpus = serializers.IntegerField(required=False, default=0, min_value=0, max_value=100_000)
    gpu_share = serializers.CharField(
        required=False, max_length=7, help_text="Of each GPU, such as 1/7 for a slice; else whole ones."
    )
    cpus = _quantity("CPU cores.")
    memory_gib = _quantity("Memory, GiB.")
    gpu_model = serializers.CharField(required=False, max_length=100)
    mig_profile = serializers.CharField(required=False, max_length=100)
    account = serializers.CharField(required=False, max_length=100, help_text="Else any of the tenant's.")
    queue = serializers.CharField(required=False, max_length=100)
    qos = serializers.CharField(required=False, max_length=100)
    priority_class = serializers.CharField(required=False, max_length=100)


class PartSerializer(serializers.Serializer[Any]):
    """What the job adds to the use at one price."""

    description = serializers.CharField()
    meter = serializers.CharField()
    resource_seconds = serializers.CharField(help_text="An exact fraction such as 115237 or 50/7.")
    quantity = serializers.CharField(help_text="In units.")
    unit = serializers.CharField()
    amount = MoneyField(help_text="What the lines of this price grow by.")


class TermSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    amount = MoneyField()


class UnpricedSerializer(serializers.Serializer[Any]):
    resource = serializers.CharField()
    hours = QuantityField()


class QuoteSerializer(serializers.Serializer[Quote]):
    """What the job adds to what the tenant owes, before tax."""

    started = MomentField()
    ended = MomentField()
    account = serializers.CharField()
    project = serializers.CharField()
    lines = PartSerializer(many=True)
    terms = TermSerializer(many=True, help_text="Fees, commitment and discounts that change with it.")
    unpriced = UnpricedSerializer(many=True, help_text="What no price covers; then the cost is not known.")
    total = serializers.ListField(child=MoneyField(), help_text="One amount per currency.")


class Quotes(TenantEndpoint):
    """What a job would cost, were it run. Nothing is kept."""

    scope = "usage:read"
    write_scope = "usage:read"
    whole_tenant = True
    success = 200
    serializer = QuoteSerializer
    request_serializer = JobShape
    write_parameters = (parameters.TENANT,)

    def post(self, request: Any) -> HttpResponse:
        del request
        tenant, values = self.needed_tenant(), self.body()
        started = values.get("starts_at") or self.moment.replace(microsecond=0)
        fields = {name: str(values[name]) for name in SHAPE if name in values}
        try:
            job = quotes.job_of(fields, started=started)
            cluster = values.get("cluster") or first_cluster(tenant, at=self.moment)
            result = quote(tenant=tenant, cluster=cluster, job=job, now=self.moment)
        except QuoteError as error:
            raise unquotable(error) from error
        return as_json(_as_data(result))


def unquotable(error: QuoteError) -> ProblemError:
    """400 with the field that is wrong."""
    detail, field = sentence(error), error.values.get("field") or FIELDS[error.code]
    return bad_request(detail, (f"/{field}", detail))


def first_cluster(tenant: Tenant, *, at: datetime) -> str:
    """The name of one on which the tenant owns an account then; "" where there is none."""
    marks = usage.marks(accounts_of(tenant, at=at))
    return next((mark.cluster for mark in marks), "")


def _as_data(result: Quote) -> dict[str, Any]:
    """The names of `quote --json`; amounts as everywhere in the API."""
    data = quotes.as_data(result)
    for rows in (data["lines"], data["terms"]):
        for row in rows:
            row["amount"] = {"amount": row["amount"], "currency": row.pop("currency")}
    for line in data["lines"]:
        del line["price"]
    return data | {"total": [money(amount) for amount in result.total]}
