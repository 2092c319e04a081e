"""What quotas refuse: the sentence of each code, with its values filled in."""

from __future__ import annotations

from collections.abc import Mapping

from django.utils.translation import gettext_noop as _

from billing.rules import errors

SENTENCES: Mapping[str, str] = {
    **errors.SENTENCES,  # of values that a rule refuses
    "quota-above-cap": _("The operator lets you set this quota up to {cap}: ask them for more than that."),
    "quota-above-parent": _(
        "{amount} is more than the {parent_amount} of {parent}, which holds all of what this one counts: give it at "
        "most as much, or raise {parent} first."
    ),
    "quota-account": _(
        "{tenant} has no account {account}: have the operator assign it first, or name another one."
    ),
    "quota-account-elsewhere": _(
        "The account {account} of {tenant} is on another cluster, or of another project: name those that it has, or "
        "leave them out."
    ),
    "quota-action-scope": _(
        "A quota of a queue, QOS or GPU model can only notify, and one of a user can notify, hold or end jobs: a block "
        "stops whole accounts. Leave that out of its scope, or choose another action."
    ),
    "quota-amount-decimals": _("{amount} is finer than {unit} is counted: give at most {places} decimals."),
    "quota-amount-range": _("An amount is from 0 to {most:,}, not {amount}."),
    "quota-below-cap": _("The amount {amount} is above the cap {cap}: raise the cap, or lower the amount."),
    "quota-cap-of-operator": _("Only operators set a cap: leave it out."),
    "quota-capped": _(
        "The operator has set a cap on {name}: you can change its amount, thresholds and recipients, and not end it or "
        "change what it counts."
    ),
    "quota-cluster": _(
        "{tenant} has no account on a cluster {cluster}: have the operator assign one first, or name another cluster."
    ),
    "quota-credits-scope": _(
        "Credits are given to the whole tenant: a quota that they lower has no scope and counts money, or with top-ups "
        "what wallets are charged."
    ),
    "quota-borrows-scope": _(
        "A quota that borrows is of one whole project: name the project, and nothing else of the scope."
    ),
    "quota-borrows-twice": _(
        "{other} of the same project borrows from {pool} already: a project borrows once."
    ),
    "quota-carry-elsewhere": _(
        "A fixed term and a rolling window have no period before: choose another period, or carry nothing over."
    ),
    "quota-carry-over": _("A period carries over 0 to 100 percent of the amount, not {percent}."),
    "quota-currency": _("{unit} is not the currency of {tenant}, which is {currency}."),
    "quota-forecast-rolling": _(
        "A rolling window has no end that could be forecast: give thresholds of what is used."
    ),
    "quota-grace": _(
        "Jobs are ended {least} to {most:,} minutes after the warning: give a grace within these."
    ),
    "quota-grace-elsewhere": _(
        "Only a quota that ends jobs has a grace, or ends older jobs: leave these out, or choose to end jobs."
    ),
    "quota-name": _(
        "Name a quota by lower-case letters, digits and hyphens, at most 50, such as monthly-gpu."
    ),
    "quota-name-check": _("No quota can be named {name}: the API asks there whether a job may run."),
    "quota-name-of-plan": _(
        "Names that begin with {prefix} are those of quotas of plans: choose another name."
    ),
    "quota-name-of-debt": _(
        "Names that begin with {prefix} are those of budgets of wallets below zero: choose another name."
    ),
    "quota-no-currency": _("{tenant} is on no plan yet, so its currency is not known: say the unit."),
    "quota-of-plan": _(
        "{name} comes with the plan, so it is not changed or ended here: set another one of the same scope beside it."
    ),
    "quota-of-plan-above": _(
        "{amount} is more than the {parent_amount} of {parent}, which comes with the plan and counts the same: only an "
        "operator can give more than that."
    ),
    "quota-of-plan-name": _(
        "Name a quota of a plan by lower-case letters, digits and hyphens, at most {most}, such as monthly-gpu."
    ),
    "quota-of-plan-narrow": _(
        "A quota of a plan is for each of its tenants: leave out project, user, account, recipients and cap."
    ),
    "quota-of-plan-pool": _("A pool and its projects are a tenant's own: a plan has none."),
    "quota-of-plan-in-use": _(
        "Plan {version} is in use, so its quotas stay as they are: give the new ones with a later `from`."
    ),
    "quota-of-wallet": _(
        "{name} comes with the debt of a wallet and goes with it: top the wallet up, or have an operator change what "
        "a debt of the tenant's wallets does."
    ),
    "quota-paid-period": _(
        "What the tenant pays for others is known of whole billing periods: choose a month or longer, or "
        "the billing period."
    ),
    "quota-paid-scope": _(
        "What the tenant pays for others is money of no project, user or cluster of its own: leave the scope empty."
    ),
    "quota-pool": _(
        "A pool is lent to the tenant's projects: it has no scope, only notifies, and has no forecast thresholds, no "
        "credits, no reservation cap and no pool of its own."
    ),
    "quota-pool-carries": _("A pool and the quotas that borrow from it carry nothing over."),
    "quota-pool-differs": _("{pool} counts something else, or other periods: give both the same."),
    "quota-pool-in-use": _("{borrowers} borrow from {name}: change or end these first."),
    "quota-pool-none": _("{tenant} has no pool {pool}: set a quota of this name that lends first."),
    "quota-project": _(
        "{tenant} has no project {project}: give an account to it first, or name another one."
    ),
    "quota-recipient": _("{email} is no member of {tenant}: invite them first, or name another member."),
    "quota-recipients-many": _("Name at most {most} recipients."),
    "quota-repeat": _("Repeat every: give an amount above zero, at most {most:,}."),
    "quota-reservation-cap": _("A cap for one reservation is above zero: leave it out for none."),
    "quota-scope-long": _("A name in the scope has at most 255 characters."),
    "quota-term": _("A fixed term has a first day and an end behind it, at most ten years later."),
    "quota-term-elsewhere": _(
        "Only a fixed term has a first day and an end of its own: leave these out, or choose a fixed term."
    ),
    "quota-unit-elsewhere": _("GPU-hours have no unit: leave it out."),
    "quota-unit-tokens": _("Tokens are no money: choose wallet credits as what it counts."),
    "quota-unit-unknown": _("{unit} is no unit of a wallet; write a currency of ISO 4217, or TOK."),
    "quota-release-past": _("{until} is over already: say until when nothing is to be blocked."),
    "quota-release-reason": _("Say why the quotas are released: the reason is kept."),
    "token-balance": _("It has no token_balance that is a number."),
    "token-balance-range": _("A token_balance is at most {most:,}, above zero or below."),
    "token-below-overdraft": _(
        "{balance} is beyond the overdraft of {overdraft}: raise the overdraft of the wallets first."
    ),
    "token-brought-over": _(
        "Another balance was brought over before, {balance}: correct it with grant_credit, or by what is used."
    ),
    "token-file-large": _("{name} has at most {most} MiB."),
    "token-file-no-list": _('black_house.json is a list of users, such as ["ben"].'),
    "token-file-no-object": _(
        'users_tokens.json has an object for each user: {{"ben": {{"token_balance": 46.5}}}}.'
    ),
    "token-file-none": _("Give users_tokens.json, black_house.json, or both."),
    "token-file-twice": _("{user} is in users_tokens.json twice: leave one of the two."),
    "token-file-unreadable": _("{name} is no JSON in UTF-8."),
    "token-file-users": _("A file has at most {most:,} users, not {count:,}."),
    "token-free": _("Its wallet has {balance}, and a block ends at {free_at}: it is free."),
    "token-no-debt": _(
        "The wallets of {tenant} say nothing of a debt: give [[tenant.wallet]] a `debt` in a file for `apply` first."
    ),
    "token-no-wallet": _("It has no wallet: its balance is in no users_tokens.json that was imported."),
    "token-no-wallets": _(
        "Users of {tenant} have no wallets in {unit}: give it [[tenant.wallet]] with "
        'for = "user" in a file for `apply`.'
    ),
    "token-too-early": _("Its wallet opens at {since:%Y-%m-%d %H:%M} UTC: import it then."),
    "token-user": _("It is no name of a user: text of 1 to 255 printable characters."),
    "quota-watch": _(
        "Only a quota that blocks can be tried first, or watched: choose an action that blocks, or leave this out."
    ),
    "quota-window": _("A rolling window has from 1 to {most:,} hours, which are ten years."),
    "quota-window-elsewhere": _(
        "Only a rolling window has hours: leave them out, or choose a rolling window."
    ),
}
