"""Jobs, what each costs, and the pieces that its cost is made of."""

from __future__ import annotations

from datetime import datetime, timedelta
from fractions import Fraction
from functools import cache
from typing import Any

from django.db.models import F, QuerySet
from django.http import HttpResponse
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from billing.models import RatedJob, Verdict
from billing.queries import job_parts, jobs_in_files
from billing.queries import jobs as queries
from billing.queries.jobs import Job, Piece
from billing.rules.money import Money
from clusters import absent_records
from portal.api import identifiers, parameters
from portal.api.cursors import Page
from portal.api.fields import IdField, MomentField, QuantityField, RowSerializer
from portal.api.problems import bad_parameter
from portal.api.views import TenantEndpoint

MONTHS_IN_FILES = "X-Months-In-Files"
"""A header of a list without `from`, or of a part of a job, without jobs of dropped months: which these are."""

NEWEST, COST = "-started", "-cost"
ORDERS = {NEWEST: ("-shown_at", "-record_id"), COST: ("-cost", "-record_id")}
EXACT = {
    "type": "object",
    "properties": {"amount": {"type": "string"}, "currency": {"type": "string"}},
    "required": ["amount", "currency"],
}


@extend_schema_field(EXACT)
class ExactMoneyField(serializers.Field[Any, Any, Any, Any]):
    """An amount before the rounding of an invoice line: an exact decimal, or a fraction such as 50/7."""

    def to_representation(self, value: Money) -> dict[str, str]:
        return {"amount": exact(value.amount), "currency": value.currency}


def exact(value: Fraction) -> str:
    """A decimal where it ends, else a fraction."""
    rest = value.denominator
    for factor in (2, 5):
        while rest % factor == 0:
            rest //= factor
    if rest != 1:
        return f"{value.numerator}/{value.denominator}"
    digits = 0
    while (10**digits) % value.denominator:
        digits += 1
    whole = value * 10**digits
    text = f"{abs(whole.numerator):0{digits + 1}d}"
    sign = "-" if value < 0 else ""
    return f"{sign}{text[:-digits]}.{text[-digits:]}" if digits else f"{sign}{text}"


_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - in UTC: an instant without a zone is written in half the time


class EpochField(MomentField):
    """Epoch seconds as an instant."""

    def to_representation(self, value: int) -> str:  # type: ignore[override]
        return f"{(_EPOCH + timedelta(seconds=value)).isoformat()}Z"


class JobSerializer(RowSerializer[Job]):
    """A job as it is now, and what it costs so far."""

    id = IdField("job", source="row.record_id")
    job_id = serializers.CharField(source="row.job_id", help_text="As its scheduler calls it.")
    name = serializers.CharField(source="row.name")
    part_of = serializers.CharField(
        source="row.part_of",
        help_text="The job that it is a part of, or may be: of a pod its namespace and owner. Empty: none.",
    )
    cluster = serializers.CharField(source="row.cluster")
    account = serializers.CharField(source="row.account")
    project = serializers.CharField(source="row.project_name")
    user = serializers.CharField(source="row.user")
    queue = serializers.CharField(source="row.queue")
    qos = serializers.CharField(source="row.qos")
    state = serializers.CharField(source="row.state", help_text="As its scheduler calls it.")
    gpus = serializers.IntegerField(source="row.gpus")
    gpu_model = serializers.CharField(source="row.gpu_model", help_text="Empty: it has none, or nobody says.")
    mig_profile = serializers.CharField(source="row.mig_profile")
    nodes = serializers.IntegerField(source="row.nodes")
    submitted_at = EpochField(source="row.submitted", allow_null=True)
    started_at = EpochField(source="row.started", allow_null=True)
    ended_at = EpochField(source="row.ended", allow_null=True, help_text="Null: it runs or waits.")
    seen_until = EpochField(
        source="row.seen_until", allow_null=True, help_text="How far a run without end is known."
    )
    gpu_seconds = QuantityField(help_text="Charged or waived so far.")
    verdict = serializers.ChoiceField(choices=[member.value for member in Verdict])
    cost = ExactMoneyField(allow_null=True, help_text="Before rounding; null where no price was applied.")
    depends_on_total = serializers.BooleanField(
        source="by_total",
        help_text="The cost is at the first unit's price; tiers or an allowance decide in the end.",
    )


class PieceSerializer(serializers.Serializer[Piece]):
    """One stretch of a job in one project, at one price, on one invoice or none."""

    project = serializers.CharField()
    resource = serializers.CharField()
    verdict = serializers.CharField()
    resource_seconds = serializers.SerializerMethodField(help_text="Exact; negative where it is taken back.")
    meter = serializers.CharField(
        source="tag.meter", default=None, allow_null=True, help_text="What is priced."
    )
    unit_price = QuantityField(
        source="tag.unit_price", default=None, allow_null=True, help_text="Per hour; of the first unit."
    )
    former_unit_price = QuantityField(
        source="former.unit_price",
        default=None,
        allow_null=True,
        help_text="Where the price was corrected after it was invoiced: the cost is the difference.",
    )
    cost = ExactMoneyField(allow_null=True)
    invoice = serializers.CharField(help_text="Number; empty: on none yet.")
    line = serializers.IntegerField(
        allow_null=True,
        help_text="Position of its line on that invoice; null also where it adds nothing to it.",
    )
    paid_by = serializers.CharField(help_text="Another tenant, on whose invoice it is.")

    def get_fields(self) -> dict[str, Any]:
        stretch = {"from": MomentField(source="service_from"), "to": MomentField(source="service_to")}
        return stretch | super().get_fields()

    def get_resource_seconds(self, piece: Piece) -> str:
        return exact(piece.resource_seconds)


class WholeJobSerializer(serializers.Serializer[Job]):
    """A job of several parts: what they come to together."""

    name = serializers.CharField(source="number", help_text="As `part_of` of its parts has it.")
    parts = serializers.IntegerField(source="parts.count")
    running = serializers.IntegerField(source="parts.running", help_text="Parts that run.")
    started_at = EpochField(source="parts.started", allow_null=True, help_text="The first of them.")
    gpu_seconds = QuantityField(help_text="Charged or waived so far.")
    verdict = serializers.ChoiceField(choices=[member.value for member in Verdict])
    cost = ExactMoneyField(allow_null=True, help_text="Before rounding; null where no price was applied.")


class JobDetailSerializer(JobSerializer):
    """A job with the pieces of its cost."""

    whole = WholeJobSerializer(allow_null=True, help_text="The job that it is a part of; null: none.")
    pieces = PieceSerializer(many=True)


COLUMNS = sorted(
    {
        source.removeprefix("row.")
        for field in JobSerializer().fields.values()
        if (source := str(field.source)).startswith("row.")
    }
    | {*queries.COSTED, "shown_at"}
)
"""Of a job in a list: what is shown, what its cost is computed from, and what the list is ordered by."""


@cache
def listed(*, by_cost: bool) -> Any:
    """Jobs as tuples by name. Made once: to tell the ORM of so many columns takes as long as to read them."""
    rows: Any = RatedJob.objects.runs()
    rows = rows.annotate(project_name=F("project__name"))
    if by_cost:
        rows = rows.annotate(cost=queries.COST_RANK)
    return rows.values_list(*COLUMNS, *(["cost"] if by_cost else []), named=True)


class JobEndpoint(TenantEndpoint):
    scope = "jobs:read"
    in_files = True

    def jobs(self) -> Any:
        return self.of_client(RatedJob.objects.runs().select_related("project"))

    def of_client(self, rows: QuerySet[Any, Any]) -> QuerySet[Any, Any]:
        rows = rows.filter(tenant=self.needed_tenant())
        project = self.client.key.project_id
        return rows.filter(project=project) if project is not None else rows


def tell_of_files(response: HttpResponse, months: str) -> None:
    """Say of which months jobs are not in the answer."""
    if months:
        response.headers[MONTHS_IN_FILES] = months.replace("…", "to")


class Jobs(JobEndpoint):
    """The jobs of a tenant, the newest first, or the most expensive."""

    serializer = JobSerializer
    lists = True
    parameters = (
        parameters.TENANT,
        parameters.moment("from", "Started at this instant or later; submitted, while it waits."),
        parameters.moment("to", "Started before this instant."),
        parameters.text("project", "Name of a project."),
        parameters.text("user", "User name at the scheduler.", example="ben"),
        parameters.text("account", "Account at the scheduler."),
        parameters.text("cluster", "Name of a cluster."),
        parameters.text(
            "state",
            "State, as the scheduler calls it; in small letters, in any spelling.",
            example="COMPLETED",
        ),
        parameters.text("gpu_model", "GPU model.", example="h100"),
        parameters.text("job_id", "Id at the scheduler.", longest=400),
        parameters.text("part_of", "A job of several parts: its parts.", longest=400),
        parameters.choice("order", [*ORDERS], "Newest or most expensive first.", many=False, default=NEWEST),
        *parameters.LISTS,
    )

    def get(self, request: Any) -> HttpResponse:
        del request
        query = self.query
        rows: Any = self.of_client(listed(by_cost=query["order"] == COST))
        if query["from"] and query["to"] and query["from"] >= query["to"]:
            raise bad_parameter("from", "from is not before to.")
        if query["from"]:
            until = int(query["to"].timestamp()) if query["to"] else 2**62
            absent_records.show(absent_records.list_between(int(query["from"].timestamp()), until))
            rows = rows.filter(shown_at__gte=int(query["from"].timestamp()))
        if query["to"]:
            rows = rows.filter(shown_at__lt=int(query["to"].timestamp()))
        for name in ("user", "account", "cluster", "gpu_model", "job_id", "part_of"):
            if query[name]:
                rows = rows.filter(**{f"{name}__in": query[name]})
        if query["state"]:
            rows = rows.in_state(query["state"])
        if query["project"]:
            rows = rows.filter(project__name__in=query["project"])
        response = self.page(rows, order=ORDERS[query["order"]])
        if not query["from"]:
            tell_of_files(response, jobs_in_files.absent_months())
        return response

    def prepared(self, page: Page[Any]) -> list[Job]:
        return queries.costed(self.needed_tenant(), page.rows)


class OneJob(JobEndpoint):
    """One job, with the pieces that its cost is made of."""

    serializer = JobDetailSerializer
    parameters = (parameters.TENANT,)

    def get(self, request: Any, name: str) -> HttpResponse:
        del request
        record = identifiers.read("job", name)
        view = jobs_in_files.load_job(self.needed_tenant(), record)
        job, pieces = view.job, view.pieces
        if not self.jobs().filter(record_id=record).exists():
            raise RatedJob.DoesNotExist
        project = self.client.key.project
        if project is not None:  # a job that changed its project has pieces of the other one, too
            pieces = [piece for piece in pieces if piece.project == project.name]
        whole = job_parts.whole(self.needed_tenant(), job)
        response = self.one({**_values(job), "whole": whole[0] if whole else None, "pieces": pieces})
        tell_of_files(response, view.parts_in_files)
        return response


def _values(job: Job) -> dict[str, Any]:
    names = ("row", "gpu_seconds", "cost", "verdict", "by_total")
    return {name: getattr(job, name) for name in names}
