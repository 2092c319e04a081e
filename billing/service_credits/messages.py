"""What failure rules refuse: the sentence of each code, with its values filled in."""

from __future__ import annotations

from collections.abc import Mapping

from django.utils.translation import gettext_noop as _

SENTENCES: Mapping[str, str] = {
    "failure-application": _(
        "XID {xid} comes of the application, by NVIDIA's catalog, not of the hardware: leave it out."
    ),
    "failure-cluster": _("There is no cluster {cluster}: name another one, or leave it out for all."),
    "failure-faultless": _("A job in state {state} did not fail: leave the state out."),
    "failure-name": _(
        "Name a rule by lower-case letters, digits and hyphens, at most 50, such as failed-hardware."
    ),
    "failure-none": _(
        "Say at least one XID or state, or the errors of the memory: the rule would credit nothing."
    ),
    "failure-percent": _("A rule credits 1 to 100 percent, not {number}."),
    "failure-rest": _(
        "A job in state {state} has ended with the failure: no time is left to be credited. Credit the whole run, or "
        "leave the states out."
    ),
    "failure-state": _("A state has 1 to 255 characters, and a rule at most {most} of them."),
    "failure-xid": _("An XID is a number from 1 to {highest}, and a rule has at most {most} of them."),
}
