"""What the ownership of accounts refuses: the sentence of each code, with its values filled in."""

from __future__ import annotations

from collections.abc import Mapping

from django.utils.translation import gettext_noop as _

SENTENCES: Mapping[str, str] = {
    "begin-at-once": _(
        "{claim} and {following} begin at the same moment; say with `since` from when the later one owns it."
    ),
    "ends-after-next": _("{claim} ends after {following} begins; an account has one owner."),
    "ends-before-it-begins": _("An ownership of {account} would end before it begins."),
    "for-ever": _("for ever"),
    "from-the-beginning": _("from the beginning"),
    "left": _(
        "{tenant} has left and is archived, so it owns no account any more: give {account} to another tenant, or "
        "say until when, before it left, {tenant} had it."
    ),
    "overlap": _("{account} belongs to {tenant} {since}, {until}; shorten that ownership first."),
    "owned-already": _(
        "{account} belongs to {tenant} {since}, {until}; give a later moment since when to take it over from then "
        "on, or end that ownership first."
    ),
    "since": _("since {moment:%Y-%m-%d %H:%M} UTC"),
    "until": _("until {moment:%Y-%m-%d %H:%M} UTC"),
}
