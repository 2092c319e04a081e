"""What wallets refuse: the sentence of each code, with its values filled in."""

from __future__ import annotations

from collections.abc import Mapping

from django.utils.translation import gettext_noop as _

from billing.rules import errors

SENTENCES: Mapping[str, str] = {
    **errors.SENTENCES,  # of values that a rule refuses
    "debt-action": _(
        "A debt holds waiting jobs (hold-jobs), or ends running ones after a grace (end-jobs): only that has a grace."
    ),
    "debt-grace": _(
        "Jobs are ended {least} to {most:,} minutes after the warning: give a grace within these."
    ),
    "debt-range": _("A debt ends at a balance from 0 on, and demand is above 0 to 99 percent."),
    "grant-to-archived": _("{tenant} has left and is archived since {day}: it would never spend the credit."),
    "grant-expired": _("A grant that expires on {day} would pay for nothing any more."),
    "grant-key-used": _("{key} was granted before with another amount: use another reference."),
    "grant-of-nothing": _("A grant gives more than nothing; credit is taken back by spending it."),
    "grant-rule-ended-too-early": _(
        "{rule} has given until {through:%Y-%m-%d %H:%M} UTC: end it after that."
    ),
    "grant-rule-used": _(
        "{rule} has given already, so it can only be ended: give it an `until` and other terms another name."
    ),
    "grant-too-large": _("A grant is of {most:,} smallest units at most: that is a slip of the hand."),
    "hold-beyond-balance": _(
        "{amount} {unit} is more than the {free} {unit} that {wallet} may still spend: top it up first."
    ),
    "hold-key-used": _("{key} is held already with another amount: release it first."),
    "hold-of-nothing": _("Say how much: more than nothing."),
    "wallet-pays-invoices-first": _(
        "A plan of {tenant} has its wallet in {unit} pay invoices first: that is one wallet, for the tenant."
    ),
    "wallet-scope-fixed": _(
        "Wallets in {unit} are open, one for each {scope}, since {since:%Y-%m-%d %H:%M} UTC: whose they "
        "are and when they began stays."
    ),
    "wallet-unit-unknown": _("{unit} is no unit of a wallet; write a currency of ISO 4217, or {tokens}."),
}
