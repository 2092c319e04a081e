"""What notices by e-mail refuse: the sentence of each code, with its values filled in."""

from __future__ import annotations

from collections.abc import Mapping

from django.utils.translation import gettext_noop as _

SENTENCES: Mapping[str, str] = {
    "no-address": _("{email} is no e-mail address: write one like bills@example.org."),
    "no-topic": _("{topic} is no kind of e-mail: say {topics}."),
    "not-sent-again": _("{notice} is {state}: it is not sent again."),
    "too-many-contacts": _("A tenant has at most {most} contacts: remove one first."),
}
