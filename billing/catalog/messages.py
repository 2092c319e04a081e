"""What plans, subscriptions and payers refuse: the sentence of each code, with its values filled in."""

from __future__ import annotations

from collections.abc import Mapping

from django.utils.translation import gettext_noop as _

from billing.rules import errors

SENTENCES: Mapping[str, str] = {
    **errors.SENTENCES,  # of values that a rule refuses
    "allowance-of-another-version": _("The allowance {allowance} is one of another version of the plan."),
    "allowance-unknown": _("The plan has no allowance {name}; write it as [[plan.allowance]]."),
    "charge-unknown": _("{name} is nothing to charge; that are {allowed}."),
    "commitment-zero": _("A commitment is above zero; leave it out instead."),
    "dimension-of-run": _("{meter} is of what runs hold, which have no dimensions: leave `dimension` out."),
    "dimension-unknown": _("{pair} is no dimension of {meter} with a value; write one of those: {allowed}."),
    "selector-of-sum": _("Sums of {meter} have no {name}; a price of them selects by {allowed}."),
    "meter-unknown": _("{meter} is not a meter; those are {allowed}."),
    "payer-archived": _("{tenant} has left and is archived: nobody pays for it, nor does it pay."),
    "payer-currency": _(
        "{tenant} is on a plan in {used} and {payer}, which pays for it from {since} on, in {paid}: an "
        "invoice has one currency, so put one of them on a plan of the other's, or end the payer before."
    ),
    "payer-ends-before-it-begins": _(
        "{payer} would pay for {tenant} until {until}, no later than from {since}."
    ),
    "payer-follows": _("Somebody else pays for {tenant} from {since} on."),
    "payer-has-payer": _(
        "{payer} pays for {tenant} from {since} on, so {other_payer} cannot pay for {other_tenant} then: "
        "who pays for others has no payer. Have {payer} pay for both."
    ),
    "payer-is-tenant": _("{tenant} pays for itself where nobody else does: leave `payer` out."),
    "payer-planned": _(
        "{payer} pays for {tenant} from {since} on: end that first, or say until when {other} pays."
    ),
    "plan-charges-billed": _(
        "Lines have been billed by plan {plan} from {since}, so what it charges stays {charges}: give the "
        "plan a new version with a later `from`."
    ),
    "plan-charges-rated": _(
        "Usage has been rated by plan {plan} from {since}, so what it charges stays {charges}: give the "
        "plan a new version with a later `from`."
    ),
    "plan-currency-billed": _(
        "Lines have been billed by plan {plan} in {currency}: make another plan for {other}."
    ),
    "plan-currency-rated": _(
        "Usage has been rated by plan {plan} in {currency}: make another plan for {other}."
    ),
    "currency-of-plan-unknown": _(
        "{currency} is not a currency; write its code of ISO 4217, such as USD or EUR, or {tokens} for "
        "tokens."
    ),
    "plan-version-billed": _(
        "Lines have been billed by plan {version}, so it stays: give the plan a version with a later `from`."
    ),
    "plan-with-tenant": _(
        "{count} tenant is or was on plan {plan}, so it is kept for what it billed. Put whoever is on it now on "
        "another plan: then it is archived."
    ),
    "plan-with-tenants": _(
        "{count} tenants are or were on plan {plan}, so it is kept for what it billed. Put whoever is on it now on "
        "another plan: then it is archived."
    ),
    "plan-version-rated": _(
        "Usage has been rated by plan {version}, so it stays: give the plan a version with a later `from`."
    ),
    "price-ends-before-it-begins": _("The price {price} would end on {valid_until}, before it begins."),
    "price-hours": _("The hours of the price cannot be so. {cause}"),
    "price-of-unknown-state": _(
        "No price can select the state {state}: it is that of runs of which nobody says how they ended."
    ),
    "price-rated": _(
        "Usage has been rated by the price {price} from {valid_from}. To change what it costs from a day on, give it "
        "an `until` and add a new price from that day on. To correct its amount on all of its days, give the reason "
        "as `correction`. Nothing else of it can change."
    ),
    "correction-without-reason": _(
        "Say why the price {price} is corrected: usage that was billed by it is billed or credited the difference."
    ),
    "price-selectors": _("A price by use is of {meter}, and selects {allowed}."),
    "price-too-large": _("A price is below {most:,}, unlike {amount}."),
    "prices-overlap": _(
        "The price {price} from {valid_from} overlaps the price {other} from {since} {until}: end the "
        "earlier one with `until` where the later one begins."
    ),
    "selector-text": _("A {name} to select by is not empty and has neither comma nor semicolon."),
    "selector-unknown": _("{name} is nothing to select by; that are {allowed}."),
    "subscription-currency": _(
        "{tenant} would change from {currency} to {other} inside a billing period: a currency changes "
        "where one begins, such as {begins:%Y-%m-%d %H:%M} UTC."
    ),
    "subscription-follows": _(
        "{tenant} is on plan {plan} from {since:%Y-%m-%d %H:%M} UTC on; say from when after that plan "
        "{other} applies."
    ),
    "subscription-of-archived": _(
        "{tenant} has left, and is archived since {at:%Y-%m-%d}: put a new tenant on plan {plan}."
    ),
    "subscription-planned": _(
        "{tenant} goes to plan {plan} at {since:%Y-%m-%d %H:%M} UTC: withdraw that first."
    ),
    "subscription-used": _("{tenant} has used plan {plan}: put it on another plan instead."),
    "subscription-wallet-unit": _(
        "{tenant} has a wallet in {unit} with {left} in it, and nothing is converted: use it up, or let it "
        "expire, before it changes to {currency}."
    ),
    "subscription-wallets": _(
        "Plan {plan} has the wallet of {tenant} in {currency} pay invoices first, and each {scope} has "
        "one: that is one wallet, for the tenant."
    ),
    "subscription-year": _(
        "{tenant} would come to plan {plan} in the year {year}: name a day from {first} to {last}."
    ),
    "tenant-allowance-rollover": _(
        "The allowance {name} of {tenant} rolls over as the plan's does: leave `rollover` out."
    ),
    "tenant-allowance-unknown": _(
        "The plan has no allowance {name} for all, so no price is named by which {tenant} could use it."
    ),
    "term-billed": _(
        "{tenant} was billed by its own {term}, so it can only be ended: give it an `until` and add "
        "another from that day on."
    ),
    "term-dates": _(
        "{name} holds as long as its version of the plan: only what is for one tenant alone has dates."
    ),
    "term-ends-before-it-begins": _("{name} would end on {ends}, before it begins."),
    "term-number": _(
        "The number {column} is below {most:,} and has at most {places} decimals, unlike {value}."
    ),
    "term-of-version": _("{term} holds as long as its version of the plan: give the plan a new one."),
    "term-without-first-day": _("{name} of {tenant} has no first day: say from when it holds."),
    "terms-overlap": _(
        "{term} of {tenant} from {valid_from} overlaps that from {since} {until}: end the earlier one with "
        "`until` where the later one begins."
    ),
    "starting-credit-amount": _(
        "The starting credit of plan {plan} is {amount}: write an amount of {currency} from 0 on, no finer than its "
        "smallest unit."
    ),
    "starting-credit-without-wallet": _(
        'Plan {plan} is paid by invoice, so a starting credit pays for nothing: set settles = "wallet" or '
        '"wallet-first", or the starting credit to 0.'
    ),
    "tokens-settled-by-invoice": _('No invoice is in tokens: a plan in {tokens} has settles = "{settles}".'),
    "version-in-use": _(
        "Plan {version} is in use, so what it says stays: give the plan a new version with a later `from`."
    ),
    "wallet-plan-prices": _("Plan {plan} is paid by wallet as it is used: its prices are per unit."),
    "wallet-plan-terms": _("Plan {plan} is paid by wallet as it is used: it has prices alone."),
}
