"""What waste rules refuse: the sentence of each code, with its values filled in."""

from __future__ import annotations

from collections.abc import Mapping

from django.utils.translation import gettext_noop as _

SENTENCES: Mapping[str, str] = {
    "waste-busy": _("Up to {most} percent of an hour can count as idle, not {number}."),
    "waste-choice": _("Rule {name} leaves tenants no choice: ask the operator."),
    "waste-cluster": _("There is no cluster {cluster}: name another one, or leave it out for all."),
    "waste-grace": _("The grace is from {least} to {most} minutes, not {number}."),
    "waste-hours": _("A rule looks at 1 to {most} whole hours, not {number}."),
    "waste-name": _(
        "Name a rule by lower-case letters, digits and hyphens, at most 50, such as idle-4-hours."
    ),
    "waste-none": _("There is no waste rule {name} in force."),
    "waste-text": _(
        "A name that is excluded has 1 to 255 characters, and a rule at most {most} of each kind."
    ),
}
