"""What an invoice calls a price, and how it says what it comes to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from billing.catalog.version_terms import Term, own_columns
from billing.models import InvoiceLine, LineKind, Price
from billing.models.plans import SELECTORS, priced_meter
from billing.rules import hours as clock
from billing.rules.fees import amount_of
from billing.rules.formatting import grouped, hours_text, localized, money_text, price_text
from billing.rules.meters import plural
from billing.rules.money import Money
from billing.rules.tiers import Graduated, Package, Scale, Tier, Volume, of_terms


def describe(price: Price) -> str:
    """What an invoice calls a price: the meter, then what it selects, and when."""
    words = [_(priced_meter(price).label)]
    named = dict(zip(SELECTORS, _selected(price), strict=True))
    if kinds := [*named["gpu_model"], *named["dimension"]]:
        words[0] = f"{words[0]}, {_list(kinds)}"
    labels = {
        "cluster": _("cluster"),
        "queue": _("queue"),
        "qos": _("QOS"),
        "priority_class": _("priority class"),
        "mig_profile": _("slices"),
        "state": _("state"),
        "use": _("while"),
    }
    words += [
        f"{labels.get(what, what.replace('_', ' '))} {_list(values)}"
        for what, values in named.items()
        if values and what not in {"gpu_model", "dimension"}
    ]
    if hours := clock.of_terms(price.hours):
        words.append(hours.text)
    return ", ".join(words)


def describe_line(price: Price, *, former_price: Decimal | None = None) -> str:
    """As `describe`; of a line that charges for a corrected price what that was per unit, too."""
    if former_price is None:
        return describe(price)
    currency = price.version.plan.currency
    before, now = price_text(former_price, currency), price_text(price.unit_price, currency)
    return _("{description}, price corrected from {before} to {now}").format(
        description=describe(price), before=before, now=now
    )


_USES = {
    "busy": gettext_noop("busy"),
    "idle": gettext_noop("idle"),
    "unknown": gettext_noop("not measured"),
}


def _selected(price: Price) -> tuple[list[str], ...]:
    return (
        price.clusters,
        price.queues,
        price.qoses,
        price.priority_classes,
        price.gpu_models,
        price.mig_profiles,
        price.states,
        [_(_USES[use]) for use in price.uses],
        _dimensions(price.dimensions),
    )


def _dimensions(pairs: list[str]) -> list[str]:
    """The values alone, those of one dimension together: `large or small`, `input`."""
    by_name: dict[str, list[str]] = {}
    for name, _sign, value in (pair.partition("=") for pair in pairs):
        by_name.setdefault(name, []).append(value)
    return [_(" or ").join(values) for values in by_name.values()]


def _list(values: list[str]) -> str:
    return " / ".join(values)


def scale(price: Price) -> str:
    """How a price depends on the quantity, in words; "" where every unit costs the same."""
    return scale_of(
        {"model": price.model, **price.scale}, priced_meter(price).unit, price.version.plan.currency
    )


def scale_of(terms: Mapping[str, Any], unit: str, currency: str) -> str:
    """As `scale`, of terms as they stand on a line."""
    model = of_terms(terms) if terms.get("model") != Scale.PER_UNIT else None
    if isinstance(model, Package):
        return _("packages of {size} {unit} at {price}, paid in full once begun").format(
            size=_quantity(model.size), unit=_(plural(unit)), price=price_text(model.price, currency)
        )
    if isinstance(model, Graduated):
        return _("graduated: {steps}").format(steps=_steps(model.tiers, currency))
    if isinstance(model, Volume):
        steps = _steps(model.tiers, currency)
        text = _("volume: all of it at one price, by the total: {steps}.").format(steps=steps)
        falls = _("In the cheaper tier all of it costs less than just below.")
        return f"{text} {falls}" if model.cliffs(currency) else text
    return ""


def term(row: Term) -> dict[str, str]:
    """What a term says, by field, as the configuration shows it."""
    fields = {name.replace("_", " "): _text(name, getattr(row, name)) for name in own_columns(type(row))}
    dates = {"from": str(row.valid_from), "until": str(row.valid_until or "")}
    return fields | (dates if row.valid_from is not None else {})


def whose(row: Term) -> str:
    """Its name, and for whom it is where it is not for all."""
    return f"{row.name}, for {row.tenant.slug} alone" if row.tenant else row.name


def _text(name: str, value: Decimal | bool | None) -> str:
    if value is None or isinstance(value, bool):
        return "yes" if value else ""
    return _quantity(value) if name == "hours" else f"{value.normalize():f}"


def detail(line: InvoiceLine, currency: str) -> str:
    """What a line says beside quantity and amount: how it is priced, what is included, with whom it is shared."""
    terms = line.terms
    if not terms:
        return ""
    if line.kind != LineKind.USAGE:
        return _flat(terms, currency)
    whole, included, own = (Fraction(terms[name]) for name in ("of", "included", "own"))
    words = [scale_of(terms["price"], line.unit, currency)]
    if included:
        words.append(
            _("{included} of {whole} {unit} included").format(
                included=hours_text(included), whole=hours_text(whole), unit=_(plural(line.unit))
            )
        )
    if own != whole:
        words.append(
            _("its share of {whole} {unit} of all projects").format(
                whole=hours_text(whole), unit=_(plural(line.unit))
            )
        )
    return "; ".join(word for word in words if word)


def computation(line: InvoiceLine, currency: str) -> str:
    """How a line that is priced with those of other projects comes to its amount."""
    terms = line.terms
    if line.kind != LineKind.USAGE:
        return _flat_computation(line, currency)
    whole, included, own = (Fraction(terms[name]) for name in ("of", "included", "own"))
    amount, share, billed = (
        money_text(Money.from_minor(terms[name], currency)) for name in ("amount", "share", "billed")
    )
    price = scale_of(terms["price"], line.unit, currency) or _("at {price}").format(
        price=price_text(line.unit_price, currency)
    )
    text = _("{whole} {unit} of all projects, {price} = {amount}, rounded once")
    if included:
        text = _("{whole} {unit} of all projects less {included} included, {price} = {amount}, rounded once")
    words = [
        text.format(
            whole=hours_text(whole),
            unit=_(plural(line.unit)),
            included=hours_text(included),
            price=price,
            amount=amount,
        )
    ]
    if own != whole:
        words.append(
            _("{hours} of them are this project's: {amount}").format(hours=hours_text(own), amount=share)
        )
    if terms["billed"]:
        words.append(_("{amount} billed before").format(amount=billed))
    on_invoice = money_text(Money.from_minor(line.amount, currency))
    return "; ".join([*words, _("on the invoice {amount}").format(amount=on_invoice)])


def _flat(terms: Mapping[str, Any], currency: str) -> str:
    """What a fee, a commitment or a discount says of itself on a line."""
    part = _part(terms)
    if "fee" in terms:
        words = _("{price} per period").format(price=price_text(Decimal(terms["fee"]), currency))
    elif "commitment" in terms:
        words = _("{least}; used for {amount}").format(
            least=_least(terms, currency), amount=_used(terms, currency)
        )
    elif "commitments" in terms:
        parts = [
            _("{terms}, for {part} of its seconds").format(
                terms=_least(commitment, currency), part=_part(commitment | {"of": terms["of"]}) or _("all")
            )
            for commitment in terms["commitments"]
        ]
        return _("{least}; used for {amount}").format(least="; ".join(parts), amount=_used(terms, currency))
    else:
        base = money_text(Money.from_minor(terms["base"], currency))
        off = (
            f"{localized(str(terms['percent']))} %"
            if terms["percent"]
            else price_text(Decimal(terms["off"]), currency)
        )
        words = _("{discount} off {amount}").format(discount=off, amount=base)
    return _("{terms}, for {part} of its seconds").format(terms=words, part=part) if part else words


def _least(terms: Mapping[str, Any], currency: str) -> str:
    factor = Decimal(terms["factor"])
    text = _("at least {price} per period")
    if factor != 1:
        text = _("at least {price} per period; what lies above counts {factor} times")
    return text.format(
        price=price_text(Decimal(terms["commitment"]), currency), factor=localized(str(factor))
    )


def _used(terms: Mapping[str, Any], currency: str) -> str:
    return money_text(Money.from_minor(terms["use"], currency))


def _flat_computation(line: InvoiceLine, currency: str) -> str:
    terms = line.terms
    parts = [
        _("{terms} = {amount}, rounded once").format(
            terms=_flat(terms, currency), amount=money_text(amount_of(terms, currency))
        ),
        _("{amount} billed before").format(amount=money_text(Money.from_minor(terms["billed"], currency)))
        if terms["billed"]
        else "",
        _("on the invoice {amount}").format(amount=money_text(Money.from_minor(line.amount, currency))),
    ]
    return "; ".join(filter(None, parts))


def _part(terms: Mapping[str, Any]) -> str:
    """`1,339,200 of 2,678,400` where it holds for less than the whole period."""
    seconds, of = terms["seconds"], terms["of"]
    if seconds == of:
        return ""
    return _("{part} of {whole}").format(part=localized(f"{seconds:,}"), whole=localized(f"{of:,}"))


def _steps(tiers: Sequence[Tier], currency: str) -> str:
    steps = [
        _("up to {quantity} at {price}").format(
            quantity=_quantity(tier.up_to), price=price_text(tier.unit_price, currency)
        )
        for tier in tiers
        if tier.up_to
    ]
    last = price_text(tiers[-1].unit_price, currency)
    return ", ".join([*steps, (_("above at {price}") if steps else _("all at {price}")).format(price=last)])


def _quantity(number: Decimal) -> str:
    return grouped(f"{number.normalize():f}")
