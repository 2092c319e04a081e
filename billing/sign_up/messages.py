"""What sign-ups, changes of plan and departures refuse: the sentence of each code, with its values filled in."""

from __future__ import annotations

from collections.abc import Mapping

from django.utils.translation import gettext_noop as _

SENTENCES: Mapping[str, str] = {
    "departure-none": _("{tenant} has not asked to leave, or it was taken back. Reload the page."),
    "departure-of-archived": _("{tenant} has left already."),
    "departure-past": _("Enter a day from tomorrow on, at most {most} days ahead."),
    "last-period-large": _(
        "More than {most:,} jobs ran in it, too many to price them here: ask the operator what they would cost."
    ),
    "last-period-negotiated": _(
        "You were on a plan that was agreed with the operator, so there is nothing to compare."
    ),
    "last-period-unpriced": _("Plan {plan} had no price then for what you used: {models}."),
    "last-period-unused": _("You used nothing in it."),
    "plan-change-ending": _("The operator ends your plan on {day}: ask them about it."),
    "plan-change-moved": _("It changed since the preview, so nothing was done. Look at it again."),
    "plan-change-negotiated": _("Your plan was agreed with the operator: ask them to change it."),
    "plan-change-none": _("No change of plan is planned. Reload the page."),
    "plan-change-operator": _("The operator has planned a change to plan {plan} already: ask them about it."),
    "plan-change-private": _("Plan {plan} is not offered: choose one of the list."),
    "plan-change-same": _("You are on plan {plan} already."),
    "sign-up-begun": _("The operator has begun to set up {tenant}: ask them to take that back first."),
    "sign-up-card-missing": _("No card is saved yet: save one, then go on."),
    "sign-up-closed": _("Nobody can sign up here at the moment. Ask the operator to invite you."),
    "sign-up-country": _("Enter your country by its two letters, such as DE or US."),
    "sign-up-decided": _("This sign-up does not wait for a decision any more. Reload the page."),
    "sign-up-domain": _("Addresses of {domain} cannot sign up here. Use your address at work."),
    "sign-up-domain-limit": _("Too many people of {domain} have signed up today. Try again tomorrow."),
    "sign-up-full": _("Too many sign-ups wait for the operator. Try again in a few days."),
    "sign-up-limit": _("Enter the limit of one domain as a whole number from 0 to {most} a day."),
    "sign-up-name": _("Enter the name of your organization, with at most {most} characters."),
    "sign-up-no-domain": _("{domain} is no domain: write one such as example.org."),
    "sign-up-nobody": _(
        "The person has no open account any more, so nobody would own the tenant: refuse it."
    ),
    "sign-up-operator": _("Operators do not sign up: make the tenant on the operator pages."),
    "sign-up-own": _("This sign-up is your own: another operator decides on it."),
    "sign-up-plan": _("Choose a plan of the list."),
    "sign-up-reason": _("Say why, in at most {most} characters: the person reads it."),
    "sign-up-too-many": _("You have signed up {most} times already. Ask the operator."),
    "sign-up-unproved": _("Confirm your e-mail address first: open the link in the e-mail."),
    "sign-up-waits": _("You have signed up for {tenant} already. Take that back first."),
}
