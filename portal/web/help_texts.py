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
            "A change is split into the number of runs, their length, price and mix, group by group. The parts add"
            " up to the difference, to the cent."
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
            "The job is priced as if it started when you say, or now, with your tiers and what is left of included "
            "hours. Other jobs in the meantime can change what the invoice charges for it."
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
    "line": HelpText(
        gettext_noop("Amount of a line"),
        gettext_noop(
            "The amounts of all jobs of the line are added up exactly and rounded once. The price that applied to "
            "each second is shown on the page of its job."
        ),
        "explanation/amounts",
        "once-per-line",
    ),
    "tiers": HelpText(
        gettext_noop("Prices"),
        gettext_noop(
            "Most prices are for each unit. A price with tiers, or of packages, looks at all that is used at it "
            "in a billing period."
        ),
        "explanation/amounts",
        "prices-that-look-at-the-total",
    ),
    "allowance": HelpText(
        gettext_noop("Included hours"),
        gettext_noop(
            "The earliest usage of a billing period takes them first, and what is left over lapses at its end, "
            "unless the plan carries it over. For a part of a period there is the same part of them."
        ),
        "explanation/amounts",
        "allowances",
    ),
    "live": HelpText(
        gettext_noop("Cost so far"),
        gettext_noop(
            "What running jobs came to up to the last reading of their cluster, at the price of each second and "
            "the first tier. It grows until they end, and is rounded with its invoice line."
        ),
        "explanation/amounts",
        "accrued-spend",
    ),
    "status": HelpText(
        gettext_noop("Data status"),
        gettext_noop(
            "A cluster is behind if it has not been read for two hours, or for two readings if these are further "
            "apart. What ran meanwhile is read afterwards: delays change when you see usage, never what it costs."
        ),
        "how-to/run-the-portal",
        "how-old-data-is",
    ),
    "idle-saved": HelpText(
        gettext_noop("Saved"),
        gettext_noop(
            "An estimate at the price of the first unit, never a part of an invoice. A job that meets two rules "
            "counts in both, so rules are not added up."
        ),
        "how-to/idle-jobs",
        "what-it-saved",
    ),
    "revenue": HelpText(
        gettext_noop("Revenue"),
        gettext_noop(
            "Usage at unit prices, before allowances, fees, discounts and tax. The same days of the month before "
            "are compared with it."
        ),
        "explanation/efficiency",
        "margin",
    ),
    "receivables": HelpText(
        gettext_noop("Receivables"),
        gettext_noop(
            "What issued invoices still owe after payments and credit notes. Age counts from the day when they "
            "were due."
        ),
        "explanation/dunning",
        "the-page-collections",
    ),
    "drafts": HelpText(
        gettext_noop("Preview"),
        gettext_noop(
            "What the month would be billed if it was issued now. Nothing is saved or sent, and usage that is "
            "read until then changes it."
        ),
        "how-to/month-end",
        "checklist",
    ),
    "models": HelpText(
        gettext_noop("Margin of a model"),
        gettext_noop(
            "What its tokens earned, less the operating cost of the GPU-hours of the jobs that served it. Say "
            "which jobs do, or the cost is not known."
        ),
        "how-to/tokens",
        "revenue-cost-and-margin-of-each-model",
    ),
}
