"""What choices about e-mails refuse: the sentence of each code, with its values filled in."""

from __future__ import annotations

from collections.abc import Mapping

from django.utils.translation import gettext_noop as _

SENTENCES: Mapping[str, str] = {
    "digest-in-quiet-hours": _(
        "The digest at {digest} lies in your quiet hours, {since} to {until}: choose another time for one of them."
    ),
    "no-operator": _("{email} is no operator: only operators subscribe to notices of tenants."),
    "no-tenant": _("There is no tenant {tenant}: write its slug, as in the address of its page."),
    "no-time": _("{text} is no time of day: write it as 08:00 or 21:30."),
    "no-timing": _("{text} is not one of at-once, digest and never."),
    "no-topic": _("There is no kind of notice {topic}: choose among {topics}."),
    "no-zone": _("{text} is no time zone: write one such as Europe/Berlin or UTC."),
    "quiet-hours-half": _("Quiet hours need a beginning and an end: fill in both, or neither."),
    "quiet-hours-same": _(
        "Quiet hours begin and end at {since}: choose two different times, or leave both empty."
    ),
    "too-many-tenants": _(
        "At most {most} tenants can be named: leave the field empty to get the notices of all."
    ),
}
