"""What the rules refuse: one error, and its sentence by its code."""

from __future__ import annotations

from collections.abc import Mapping

from portal.errors import CodedError


def _(text: str) -> str:
    """Marks a sentence for gettext, which translates it where it is said."""
    return text


SENTENCES: Mapping[str, str] = {
    "amount-not-finite": _("{value} is not an amount."),
    "amount-too-large": _("It is beyond {most} {currency}."),
    "amount-unreadable": _("{text} is not an amount; write it like 1.10"),
    "anchor-day": _("An anchor day is a day of the month from 1 to 31, not {day}."),
    "commitment-below-zero": _("A commitment is zero or more, not {amount}."),
    "currency-mismatch": _("{currency} does not go with {other}."),
    "currency-unknown": _("{currency} is not a currency of ISO 4217."),
    "decimals-endless": _("{value} has no finite decimal form; say how many places to show."),
    "discount-amount": _("A discount is above zero, not {amount}."),
    "discount-kind": _("A discount is a percentage or an amount: give one of them."),
    "discount-percent": _("A discount is above 0 and at most 100 percent, not {percent}."),
    "fee-below-zero": _("A fee is zero or more, not {amount}."),
    "gateway-amount": _("{amount} is no whole amount of {currency}."),
    "hours-empty": _("Hours without a window are none; leave them out for a price that always holds."),
    "hours-form": _("Hours have `windows`, each with `days`, `from` and `to`, and a `zone`."),
    "hours-zone": _("zone is {zone}; allowed: {allowed}."),
    "line-terms": _("These are no terms of a line: {terms}."),
    "minor-units": _("{amount} {currency} is not a whole number of minor units."),
    "moment-without-zone": _("{moment} names no zone, so it is not an instant."),
    "month-number": _("A month is a number from 1 to 12, not {month}."),
    "month-unknown": _("There is no month {text}; write year and month like 2017-10."),
    "month-unreadable": _("{text} is not a month; write it like 2017-10."),
    "number-inexact": _("{text} is not exact; write it as text."),
    "number-unreadable": _("{text} is no number; write it like 1.10."),
    "over-credit": _("Only {amount} {currency} are left to credit, before tax."),
    "overage-factor": _("An overage factor is 1 or more, not {factor}."),
    "package-quantity-decimals": _(
        "A package holds a number with at most {most} decimals, unlike {quantity}."
    ),
    "package-quantity-size": _("A package holds more than zero units and at most {most:,}, not {quantity}."),
    "period-border": _("A period has borders in UTC at whole seconds, not {moment}."),
    "period-end-past": _("A period does not end {days} days ago."),
    "period-not-of-calendar": _("{every} is no period of the calendar."),
    "period-order": _("A period starts before it ends: {start} is not before {end}."),
    "price-decimals": _("A price has at most {most} decimals, unlike {price}."),
    "price-negative": _("A price is zero or more, not {price}."),
    "price-not-finite": _("A price is a number, not {price}."),
    "price-terms": _("These terms say no price: {terms}."),
    "seller-country-missing": _("the seller has no country, on which its tax depends: give it a `country`."),
    "seller-vat-id-missing": _(
        "the seller has no VAT id, which an invoice with VAT states: give it a `vat_id`."
    ),
    "share-included": _("Of {whole} resource-seconds {included} cannot be included."),
    "split-weights": _("Money is split by weights of zero or more that are not all zero."),
    "tax-rate-missing": _(
        "no rate of {country} for {category} holds on {on}: add it as [[tax_rate]] or under Tax rates in "
        "the administration."
    ),
    "tax-rate-range": _("A tax rate is from 0 to 100 percent, not {rate}."),
    "tax-region-missing": _(
        "the tenant has no state in {country}, on which its tax depends: give it a `region` of two "
        "letters, such as CA."
    ),
    "tax-region-unknown": _(
        "{region} is no state of {country}, on which its tax depends: give it a `region` of two letters, "
        "such as CA."
    ),
    "tax-unknown": _("How {tenant} is taxed cannot be told: {cause}"),
    "tenant-country-missing": _("the tenant has no country, on which its tax depends: give it a `country`."),
    "threshold-beyond": _(
        "{text} is more than the whole amount: give at most 100%, or for more than that an amount to repeat every."
    ),
    "threshold-range": _("A threshold is above zero, with at most six decimals, not {text}."),
    "threshold-too-far": _("A threshold is at most 1000%, not {text}."),
    "threshold-unreadable": _(
        '{text} is no threshold; write "80%" of the amount, or a level such as "250.00".'
    ),
    "forecast-range": _("A threshold is above zero, with at most six decimals, not {text}."),
    "thresholds-many": _("There are at most {most} thresholds, not {count}."),
    "thresholds-twice": _("A threshold stands twice: give each once."),
    "tier-quantity-decimals": _("A tier ends at a number with at most {most} decimals, unlike {quantity}."),
    "tier-quantity-size": _("A tier ends at more than zero units and at most {most:,}, not {quantity}."),
    "tiers-end": _("The last tier is open: give it no `up_to`."),
    "tiers-open": _("Only the last tier is open: give the others an `up_to`."),
    "tiers-rise": _("Tiers rise: {upper} does not come after {lower}."),
    "time-of-day": _('{text} is no time of day; write it like "22:00".'),
    "usage-negative": _("Nobody can have used {seconds} resource-seconds."),
    "wallet-return": _("{amount} more would return than was taken."),
    "wallet-use": _("Nobody can use {amount}."),
    "weekdays": _('{text} names no days; write days like "mon-fri" or "sat, sun".'),
    "window-empty": _('It would begin and end at {start}; write to = "24:00" for all of a day.'),
    "window-form": _('A window is written like {{ days = "mon-fri", from = "22:00", to = "06:00" }}.'),
    "window-range": _("A window has days, and times from 00:00 to 24:00."),
}


class RuleError(CodedError, ValueError):
    """A value that no rule allows, or that cannot be read."""

    sentences = SENTENCES
