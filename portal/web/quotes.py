"""What a job would cost, for whoever is about to submit it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from django.http import HttpRequest, HttpResponse

from billing.queries.jobs import Shapes, shapes
from billing.simulation.quotes import Part, Quote, QuoteError, quote
from portal.core.tenants.access import Action
from portal.core.tenants.scope import own_work_tables
from portal.ops import quotes
from portal.ops.cli import BadInputError, moment
from portal.web import format as say
from portal.web.access_decorators import Visit, answer, tenant_page
from portal.web.shapes import Fact, Option, QuoteAnswer, QuoteField, QuotePage, QuoteRow

LONGEST = 100  # characters of a value
NAMES = (
    *("cluster", "gpus", "gpu_model", "gpu_share", "mig_profile", "cpus", "memory_gib"),
    *("hours", "at", "account", "queue", "qos", "priority_class"),
)


@dataclass(frozen=True)
class _Told:
    """What was asked, and what came of it; neither where nothing was asked yet."""

    asked: Mapping[str, str]
    quote: Quote | None = None
    error: str = ""


def _told(request: HttpRequest, visit: Visit) -> _Told:
    fields = {name: request.GET.get(name, "").replace("\0", "").strip()[:LONGEST] for name in NAMES}
    if "hours" not in request.GET:
        return _Told(fields)
    try:
        job = quotes.job_of(fields, started=_start(fields["at"], visit))
        cluster = fields["cluster"] or next((mark.cluster for mark in visit.marks), "")
        own_work_tables()
        price_quote = quote(tenant=visit.tenant, cluster=cluster, job=job, now=visit.moment)
        return _Told(fields, price_quote)
    except (QuoteError, BadInputError) as error:
        return _Told(fields, error=str(error))


@tenant_page(Action.READ, area="quote", outside=_told)
def job_quote(request: HttpRequest, visit: Visit, told: _Told) -> HttpResponse:
    return answer(request, visit.shell, _page(visit, told), whole="tenant/quote.html")


def _start(text: str, visit: Visit) -> datetime:
    return moment(text, visit.zone) if text else visit.moment.replace(microsecond=0)


def _page(visit: Visit, estimate: _Told) -> QuotePage:
    names = [mark.cluster for mark in visit.marks]
    return QuotePage(
        zone=visit.tenant.timezone,
        complete_through=say.moment(visit.complete_through, visit.zone) if visit.complete_through else "",
        clusters=tuple(
            Option(value=name, label=name, selected=name == estimate.asked["cluster"]) for name in names
        ),
        fields=_fields(estimate.asked, shapes(visit.tenant)),
        error=estimate.error,
        answer=_answer(estimate.quote, visit) if estimate.quote else None,
    )


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


def _answer(price_quote: Quote, visit: Visit) -> QuoteAnswer:
    unpriced = ", ".join(
        f"{say.hours(seconds)} {resource}-hours" for resource, seconds in price_quote.unpriced
    )
    return QuoteAnswer(
        total="" if price_quote.unpriced else say.sums(price_quote.total) if price_quote.total else "Nothing",
        window=f"{say.moment(price_quote.started, visit.zone)} – {say.moment(price_quote.ended, visit.zone)}",
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
