"""What limits refuse: the sentence of each code, with its values filled in."""

from __future__ import annotations

from collections.abc import Mapping

from django.utils.translation import gettext_noop as _

SENTENCES: Mapping[str, str] = {
    "limit-cluster": _("There is no cluster {cluster}: name another one, or leave it out for all."),
    "limit-empty": _("Say how many GPUs or how many jobs may be held at once."),
    "limit-model": _("A GPU model narrows a number of GPUs: give that number, or leave the model out."),
    "limit-name": _(
        "Name a limit by lower-case letters, digits and hyphens, at most 50, such as h100-at-once."
    ),
    "limit-project": _(
        "{tenant} has no project {project}: give an account to it first, or name another one."
    ),
    "limit-range": _(
        "From 1 to {most:,} can be held at once, not {number}. To let nothing start, block the account."
    ),
    "limit-text": _(
        "A name in the scope has at most 255 characters, without commas, equal signs and slashes."
    ),
    "limit-others-below": _(
        "Below {account} lies {below} of {tenant}, which a limit would hold, too: move one of the two, or limit "
        "another account."
    ),
}
