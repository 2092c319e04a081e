"""Why a report or an export cannot be made: the sentence of each code, with its values filled in."""

from __future__ import annotations

from collections.abc import Mapping

from django.utils.translation import gettext_noop as _

SENTENCES: Mapping[str, str] = {
    "bill-in-other-currency": _(
        "The bill of {provider} for {cluster} is in {currency}, and its revenue in {ours}: amounts are not converted, "
        "so there is no margin. Import a bill in {ours}."
    ),
    "ledger-accounts": _("LEDGER_ACCOUNTS has {word}; write NAME=NUMBER, where NAME is one of {allowed}."),
    "no-capacity": _(
        "A margin needs the capacity of the whole period, of all tenants: ask for a period in which passes looked "
        "at the nodes, without --tenant."
    ),
    "no-operating-cost": _(
        "No operating cost in {currency} of {model} holds on {day}: enter it with import_costs or "
        "[[operating_cost]]."
    ),
    "no-operating-cost-of-unnamed-model": _(
        "No operating cost in {currency} of a model without a name holds on {day}: enter it with import_costs or "
        "[[operating_cost]]."
    ),
    "nothing-charged": _(
        "A margin needs use that is charged in one currency: nothing is charged in this period."
    ),
    "period-order": _("The period ends before it begins: give a later end."),
    "several-currencies": _("A margin needs use that is charged in one currency: here are {currencies}."),
}
