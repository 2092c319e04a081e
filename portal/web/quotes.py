"""Cost calculator, for whoever is about to submit it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django.http import HttpResponse
from django.utils.translation import gettext as _

from billing.models import Price, Resource
from billing.queries.jobs import Shapes, shapes
from billing.queries.own_plan import load_own_prices
from billing.simulation.quotes import Quote, QuoteError, quote
from portal.core.tenants.access import Action
from portal.core.tenants.scope import acting_scope
from portal.ops import quotes
from portal.ops.cli import BadInputError, moment
from portal.sentences import sentence
from portal.web.access_decorators import TenantRequest, answer, tenant_page
from portal.web.form_input import Option, options

LONGEST = 100  # characters of a value
NAMES = (
    *("cluster", "gpus", "gpu_model", "gpu_share", "mig_profile", "cpus", "memory_gib"),
    *("hours", "at", "account", "queue", "qos", "priority_class"),
)


@tenant_page(Action.READ, area="quote")
def job_quote(request: TenantRequest) -> HttpResponse:
    fields = _typed_in(request)
    price_quote, error = None, ""
    if "hours" in request.GET:
        try:
            price_quote = _quote(request, fields)
        except (QuoteError, BadInputError) as refusal:
            error = sentence(refusal)
    with acting_scope(request.tenant):
        prices = load_own_prices(request.tenant, moment=request.moment, day=request.today)
    page = {**quote_form(request, prices), "error": error, "quote": price_quote}
    return answer(request, request.frame, page, whole="tenant/quote.html")


def quote_form(request: TenantRequest, prices: Sequence[Price]) -> dict[str, Any]:
    """The form, with what was typed into it and the GPU models of these prices. One query."""
    fields = _typed_in(request)
    names = [(mark.cluster, mark.cluster) for mark in request.marks]
    return {
        "clusters": options(names, fields["cluster"]),
        "fields": _fields(fields, shapes(request.tenant), prices),
    }


def _typed_in(request: TenantRequest) -> dict[str, str]:
    return {name: request.GET.get(name, "").replace("\0", "").strip()[:LONGEST] for name in NAMES}


def _models(prices: Sequence[Price], used: Sequence[str], choice: str | None) -> list[Option]:
    """Those that the plan prices or that ran, the one that ran last chosen; `choice` is None before a first one."""
    of_gpus = [price for price in prices if price.resource == Resource.GPU]
    named = dict.fromkeys([*used, *sorted({model for price in of_gpus for model in price.gpu_models})])
    chosen = next(iter(named), "") if choice is None else choice
    offered = [(model, model) for model in dict.fromkeys([*named, *([chosen] if chosen else [])])]
    if not chosen or any(not price.gpu_models for price in of_gpus):
        offered.append(("", _("Any other")))
    return options(offered, chosen)


def _quote(request: TenantRequest, fields: Mapping[str, str]) -> Quote:
    job = quotes.job_of(fields, started=_start(fields["at"], request))
    cluster = fields["cluster"] or next((mark.cluster for mark in request.marks), "")
    with acting_scope(request.tenant):
        return quote(tenant=request.tenant, cluster=cluster, job=job, now=request.moment)


def _start(text: str, request: TenantRequest) -> datetime:
    return moment(text, request.zone) if text else request.moment.replace(microsecond=0)


def _fields(
    fields: Mapping[str, str], suggestions: Shapes, prices: Sequence[Price]
) -> list[dict[str, object]]:
    first = not any(fields.values())

    def one(name: str, label: str, hint: str = "", *, begin: str = "", **more: object) -> dict[str, object]:
        value = begin if first else fields[name]
        return {"name": name, "label": label, "value": value, "hint": hint, **more}

    return [
        one("gpus", _("GPUs"), begin="1", numeric=True),
        one(
            "gpu_model",
            _("GPU model"),
            choices=_models(prices, suggestions.gpu_models, None if first else fields["gpu_model"]),
        ),
        one("hours", _("Hours"), begin="1", numeric=True),
        one("at", _("Starts"), _("blank = now"), kind="datetime-local"),
        one("cpus", _("CPU cores"), numeric=True),
        one("memory_gib", _("Memory, GiB"), numeric=True),
        one("queue", _("Queue"), begin=next(iter(suggestions.queues), ""), offered=suggestions.queues),
        one("qos", _("QOS"), begin=next(iter(suggestions.qoses), ""), offered=suggestions.qoses),
        one(
            "gpu_share",
            _("Part of a GPU each"),
            _("1/7 for a slice"),
            offered=("1", "1/7", "2/7", "3/7", "1/2"),
        ),
        one("mig_profile", _("MIG profile"), offered=suggestions.mig_profiles),
        one("priority_class", _("Priority class")),
        one("account", _("Account"), _("blank = any account")),
    ]
