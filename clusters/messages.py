"""What clusters refuse: the sentence of each code, with its values filled in."""

from __future__ import annotations

from collections.abc import Mapping

from django.utils.translation import gettext_noop as _

SENTENCES: Mapping[str, str] = {
    "meter-built-in": _(
        "{name} is what runs hold, and is metered already: declare the meter by another name."
    ),
    "meter-dimension-name": _(
        "{name} is no name of a dimension: write small letters, digits and underscores, such as model or direction."
    ),
    "meter-dimension-used": _(
        "Sums of {meter} may have the dimension {name}: it stays, others can be added."
    ),
    "meter-dimensions": _("A meter has at most {most} dimensions."),
    "meter-energy": _(
        "A cluster counts the energy of its jobs by {meter}, in joules: its unit stays kWh, of {joules} J."
    ),
    "meter-name": _(
        "{name} is no name of a meter: write up to {most} small letters and digits, with single hyphens between, such "
        "as llm-tokens."
    ),
    "meter-parts": _(
        "A unit is at least 1 of what is counted, with 0 to {decimals} decimals, and has at most {most} of the "
        "smallest quantity."
    ),
    "meter-unit-code": _(
        "{code} is no unit code of UN/ECE recommendation 20, such as KWH; leave it out for C62."
    ),
    "meter-used": _(
        "Usage was counted by {meter} in {unit}, so only dimensions can be added to it: declare another meter."
    ),
    "meter-with-usage": _("Usage was counted by {meter}, so it stays."),
    "meter-words": _("The {field} of a meter is text of 1 to {most} characters."),
    "no-prometheus": _("{cluster} has no connection to a Prometheus."),
    "not-kueue": _('Queues of {cluster} are not those of Kueue: set preset = "kueue".'),
    "pull-under-way": _("{cluster} is being pulled at this moment: try again when that has ended."),
    "reset-forward": _(
        "The watermark of {cluster} is {watermark}, and a reset only takes it back: name an earlier moment."
    ),
    "reset-to-future": _("{to} lies in the future: reset the watermark to a moment that has passed."),
    "watermark-missing": _("{cluster} has no watermark yet: nothing of it has been read completely."),
}
