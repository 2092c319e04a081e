"""Quotes as people and programs ask for them and read them: what a job is, as text, and what it would cost."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from fractions import Fraction
from typing import Any

from billing.models.plans import model_of
from billing.rules.money import Money, decimal_of, decimal_text, rounded_text
from billing.rules.tiers import as_terms
from billing.simulation.quotes import Part, Quote, QuoteError
from clusters.connectors.base import UsageFact
from clusters.connectors.mig import SHARE
from portal.excerpt import quoted
from portal.ops.cli import instant_text

HOUR = 3600
MOST = {"gpus": 100_000, "cpus": 10_000_000, "memory_gib": 100_000_000, "hours": 8_784}
WORDS = {
    "gpus": QuoteError("of-gpus"),
    "cpus": QuoteError("of-cpus"),
    "memory_gib": QuoteError("of-memory"),
}
"""What a refusal calls them, in the language of the whole."""
LONGEST = 20  # characters of a number


def job_of(fields: Mapping[str, str], *, started: datetime) -> UsageFact:
    """The job that holds what `told` says, as text: gpus, gpu_share, gpu_model, mig_profile, cpus, memory_gib, hours,
    account, user, queue, qos and priority_class; what is missing is none. Raises QuoteError.
    """
    begin = int(started.timestamp())
    hours = number(fields, "hours")
    end = begin + round(hours * HOUR)
    return UsageFact(
        source_key="quote",
        account=fields.get("account", ""),
        user=fields.get("user", ""),
        queue=fields.get("queue", ""),
        qos=fields.get("qos", ""),
        priority_class=fields.get("priority_class", ""),
        gpus=whole(fields, "gpus"),
        gpu_model=fields.get("gpu_model", ""),
        mig_profile=fields.get("mig_profile", ""),
        gpu_share=_share(fields.get("gpu_share", "")),
        cpu_milli=round(number(fields, "cpus") * 1000),
        memory_mib=round(number(fields, "memory_gib") * 1024),
        nodes=1,
        submitted=begin,
        started=begin,
        ended=end,
        seen_until=end,
        state="COMPLETED",
    )


def number(fields: Mapping[str, str], name: str) -> Fraction:
    """A number from zero on, of hours above it. QuoteError for anything else."""
    text = fields.get(name, "").strip()
    if not text:
        return Fraction(0)
    try:
        value = Fraction(decimal_of(text)) if len(text) <= LONGEST else None
    except ValueError:
        value = None
    if name == "hours" and (value is None or not 0 < value <= MOST[name]):
        raise QuoteError("no-hours", text=quoted(text), most=MOST[name])
    if value is None or not 0 <= value <= MOST[name]:
        raise QuoteError("no-number", field=name, text=quoted(text), resource=WORDS[name], most=MOST[name])
    return value


def whole(fields: Mapping[str, str], name: str) -> int:
    value = number(fields, name)
    if value.denominator != 1:
        raise QuoteError("no-whole-number", field=name, text=quoted(fields[name]), resource=WORDS[name])
    return value.numerator


def as_data(quote: Quote) -> dict[str, Any]:
    """The quote for programs: amounts are texts in major units, instants are ISO 8601 in UTC."""
    return {
        "started": instant_text(quote.started),
        "ended": instant_text(quote.ended),
        "account": quote.account,
        "project": quote.project,
        "lines": [_line(part) for part in quote.parts],
        "terms": [
            {"name": name, "currency": amount.currency, "amount": amount.text} for name, amount in quote.terms
        ],
        "unpriced": [
            {"resource": resource, "hours": rounded_text(seconds / HOUR, 6)}
            for resource, seconds in quote.unpriced
        ],
        "total": {amount.currency: amount.text for amount in quote.total},
    }


def _line(part: Part) -> dict[str, Any]:
    currency = part.amount.currency
    seconds = part.seconds
    return {
        "description": part.description,
        "meter": part.meter.value,
        "resource_seconds": decimal_text(seconds) if seconds.denominator == 1 else str(seconds),
        "quantity": rounded_text(seconds / HOUR, 6),
        "unit": part.meter.unit,
        "price": as_terms(model_of(part.price)),
        "currency": currency,
        "amount": part.amount.text,
    }


def text_of(quote: Quote) -> str:
    """The same for people."""
    lines = [
        f"From {instant_text(quote.started)} to {instant_text(quote.ended)}, account {quote.account or '(none)'}:"
    ]
    for part in quote.parts:
        hours = f"{rounded_text(part.seconds / HOUR, 2)} {part.meter.unit}s"
        lines.append(_columns(f"{part.description}, {hours}", part.amount))
        lines += [f"    {part.scale}"] if part.scale else []
    lines += [_columns(name, amount) for name, amount in quote.terms]
    lines += [
        f"  No price covers {rounded_text(seconds / HOUR, 2)} {resource}-hours: ask the operator for one."
        for resource, seconds in quote.unpriced
    ]
    lines += [_columns("Estimated cost (before tax)", amount) for amount in quote.total]
    return "\n".join(lines if quote.total or quote.unpriced else [*lines, "  Nothing of it is charged."])


def _columns(name: str, amount: Money) -> str:
    return f"  {name:<60} {amount.text:>14} {amount.currency}"


def _share(text: str) -> tuple[int, int]:
    text = text.strip()
    if not text or text == "1":
        return 1, 1
    match = SHARE.fullmatch(text)
    if match is None or int(match[1]) > int(match[2]):
        raise QuoteError("no-share", text=quoted(text))
    return int(match[1]), int(match[2])
