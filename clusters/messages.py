"""What clusters refuse: the sentence of each code, with its values filled in."""

from __future__ import annotations

from collections.abc import Mapping

from django.utils.translation import gettext_noop as _

SENTENCES: Mapping[str, str] = {
    "no-prometheus": _("{cluster} has no connection to a Prometheus."),
    "not-kueue": _('Queues of {cluster} are not those of Kueue: set preset = "kueue".'),
    "pull-under-way": _("{cluster} is being pulled at this moment: try again when that has ended."),
    "reset-forward": _(
        "The watermark of {cluster} is {watermark}, and a reset only takes it back: name an earlier moment."
    ),
    "reset-to-future": _("{to} lies in the future: reset the watermark to a moment that has passed."),
    "watermark-missing": _("{cluster} has no watermark yet: nothing of it has been read completely."),
}
