"""What a job would cost, for whoever is about to submit it."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from django.http import HttpResponse

from billing.queries.jobs import Shapes, shapes
from billing.simulation.quotes import Part, Quote, QuoteError, quote
from portal.core.tenants.access import Action
from portal.core.tenants.scope import acting_scope, own_work_tables
from portal.ops import quotes
from portal.ops.cli import BadInputError, moment
from portal.web import format as say
from portal.web.access_decorators import TenantRequest, answer, tenant_page
from portal.web.shapes import Fact, Option, QuoteAnswer, QuoteField, QuotePage, QuoteRow

LONGEST = 100  # characters of a value
NAMES = (
    *("cluster", "gpus", "gpu_model", "gpu_share", "mig_profile", "cpus", "memory_gib"),
    *("hours", "at", "account", "queue", "qos", "priority_class"),
)


@tenant_page(Action.READ, area="quote")
def job_quote(request: TenantRequest) -> HttpResponse:
    fields = {name: request.GET.get(name, "").replace("\0", "").strip()[:LONGEST] for name in NAMES}
    price_quote, error = None, ""
    if "hours" in request.GET:
        try:
            price_quote = _quote(request, fields)
        except (QuoteError, BadInputError) as refusal:
            error = str(refusal)
    page = QuotePage(
        zone=request.tenant.timezone,
        complete_through=say.moment(request.complete_through, request.zone)
        if request.complete_through
        else "",
        clusters=tuple(
            Option(value=mark.cluster, label=mark.cluster, selected=mark.cluster == fields["cluster"])
            for mark in request.marks
        ),
        fields=_fields(fields, shapes(request.tenant)),
        error=error,
        answer=_answer(price_quote, request) if price_quote else None,
    )
    return answer(request, request.frame, page, whole="tenant/quote.html")


def _quote(request: TenantRequest, fields: Mapping[str, str]) -> Quote:
    job = quotes.job_of(fields, started=_start(fields["at"], request))
    cluster = fields["cluster"] or next((mark.cluster for mark in request.marks), "")
    with acting_scope(request.tenant):
        own_work_tables()
        return quote(tenant=request.tenant, cluster=cluster, job=job, now=request.moment)


def _start(text: str, request: TenantRequest) -> datetime:
    return moment(text, request.zone) if text else request.moment.replace(microsecond=0)


def _fields(fields: Mapping[str, str], suggestions: Shapes) -> tuple[QuoteField, ...]:
    first = not any(fields.values())

    def one(name: str, label: str, hint: str = "", *, begin: str = "", **more: object) -> QuoteField:
        value = begin if first else fields[name]
        return QuoteField(name=name, label=label, value=value, hint=hint, **more)  # type: ignore[arg-type]  # flags of a field

    return (
        one("gpus", "GPUs", begin="1", numeric=True),
        one(
            "gpu_model",
            "GPU model",
            begin=next(iter(suggestions.gpu_models), ""),
            offered=suggestions.gpu_models,
        ),
        one("hours", "Hours", begin="1", numeric=True),
        one("at", "Starts", "now, where it is empty", kind="datetime-local"),
        one("cpus", "CPU cores", numeric=True),
        one("memory_gib", "Memory, GiB", numeric=True),
        one("queue", "Queue", begin=next(iter(suggestions.queues), ""), offered=suggestions.queues),
        one("qos", "QOS", begin=next(iter(suggestions.qoses), ""), offered=suggestions.qoses),
        one("gpu_share", "Part of a GPU each", "1/7 for a slice", offered=("1", "1/7", "2/7", "3/7", "1/2")),
        one("mig_profile", "MIG profile", offered=suggestions.mig_profiles),
        one("priority_class", "Priority class"),
        one("account", "Account", "any of yours, where it is empty"),
    )


def _answer(price_quote: Quote, request: TenantRequest) -> QuoteAnswer:
    unpriced = ", ".join(
        f"{say.hours(seconds)} {resource}-hours" for resource, seconds in price_quote.unpriced
    )
    return QuoteAnswer(
        total="" if price_quote.unpriced else say.sums(price_quote.total) if price_quote.total else "Nothing",
        window=f"{say.moment(price_quote.started, request.zone)} – {say.moment(price_quote.ended, request.zone)}",
        account=price_quote.account,
        rows=tuple(_row(part) for part in price_quote.parts),
        terms=tuple(Fact(label=name, value=say.money(amount)) for name, amount in price_quote.terms),
        unpriced=unpriced,
    )


def _row(part: Part) -> QuoteRow:
    flat = not part.scale
    return QuoteRow(
        description=part.description,
        note=part.scale,
        quantity=f"{say.hours(part.seconds)} {part.meter.unit}s",
        unit_price=say.price(part.price.unit_price, part.amount.currency) if flat else "",
        amount=say.money(part.amount),
    )
