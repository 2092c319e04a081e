"""What figures mean, for the ⓘ beside them: two sentences, and the page of the documentation with the method."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from django.utils.translation import gettext_noop


@dataclass(frozen=True, slots=True)
class HelpText:
    title: str  # "Forecast"
    text: str  # two sentences
    page: str  # of docs/, without its ending: "explanation/amounts"
    anchor: str  # of a heading there


HELP: Final[Mapping[str, HelpText]] = {
    "forecast": HelpText(
        gettext_noop("Forecast"),
        gettext_noop(
            "The last seven whole days go on to the end of the period, priced as the invoice will be. The likely "
            "range is two standard deviations of days like these."
        ),
        "explanation/amounts",
        "the-forecast",
    ),
    "explorer": HelpText(
        gettext_noop("Spend"),
        gettext_noop(
            "Usage at the price of each hour, before tax, fees, commitments and discounts. Tiers count with their"
            " first price, so the invoice can differ."
        ),
        "how-to/cost-explorer",
        "what-did-we-spend",
    ),
    "change": HelpText(
        gettext_noop("Reasons of a change"),
        gettext_noop(
            "A change is split into volume, price and mix, group by group. The parts add up to the difference, to"
            " the cent."
        ),
        "how-to/cost-explorer",
        "how-the-parts-are-computed",
    ),
    "budget-past": HelpText(
        gettext_noop("A period that has ended"),
        gettext_noop(
            "Usage that arrives late, or is corrected, counts in the period of its seconds. It never counts in the "
            "running one, except for budgets on what is billed, which count a correction where it is billed."
        ),
        "explanation/quotas",
        "periods-that-have-ended",
    ),
    "budget-used": HelpText(
        gettext_noop("Used of a budget"),
        gettext_noop(
            "What was used in the budget’s period, with running jobs as far as they were seen. Money is what the "
            "invoice would charge for it."
        ),
        "explanation/quotas",
        "used-is-one-figure",
    ),
    "quote": HelpText(
        gettext_noop("Estimate"),
        gettext_noop(
            "The job is priced as if it ran now, with your tiers and what is left of included hours. Other jobs "
            "in the meantime can change what the invoice charges for it."
        ),
        "explanation/amounts",
        "quotes-and-simulated-plans",
    ),
    "wallet": HelpText(
        gettext_noop("Available"),
        gettext_noop(
            "All credit that has not expired, less what was used by the hour. Credit that expires first is used "
            "first."
        ),
        "explanation/wallets",
        "how-a-wallet-is-charged",
    ),
    "job-cost": HelpText(
        gettext_noop("Cost of a job"),
        gettext_noop(
            "Seconds × resources × the price that applied then, exact to the last digit. It is rounded once, "
            "together with the other jobs of its invoice line."
        ),
        "explanation/amounts",
        "from-a-job-to-a-line",
    ),
    "utilization": HelpText(
        gettext_noop("Utilization"),
        gettext_noop(
            "The part of the covered GPU-hours in which the devices worked. Hours without telemetry are unknown, "
            "which is not idle."
        ),
        "explanation/efficiency",
        "the-four-terms",
    ),
    "where-hours-went": HelpText(
        gettext_noop("Where the hours went"),
        gettext_noop(
            "The parts add up to the whole, in GPU-hours and in money. An hour is at zero utilization if the "
            "devices worked less than 1 % of it."
        ),
        "explanation/efficiency",
        "where-the-hours-went",
    ),
    "findings": HelpText(
        gettext_noop("Held and not used"),
        gettext_noop(
            "Each hour that telemetry covers is in one finding at most. A month is the money of the period × 730 "
            "hours ÷ its hours."
        ),
        "explanation/efficiency",
        "held-and-not-used",
    ),
    "margin": HelpText(
        gettext_noop("Margin"),
        gettext_noop(
            "Charges for usage less the operating cost of all capacity, idle or not. It is shown where the cost "
            "of every GPU model was entered."
        ),
        "explanation/efficiency",
        "margin",
    ),
}
