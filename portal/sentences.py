"""What the edges say of an error from below: its sentence, in the language of its reader."""

from __future__ import annotations

from collections.abc import Mapping
from string import Formatter
from typing import Final

from django.utils.translation import gettext, gettext_lazy

from portal.errors import CodedError
from portal.locales import locale

NO_CHOICE: Final = {"invalid_choice": gettext_lazy("Select one of the choices.")}
"""The `error_messages` of a form's field with choices: Django's own repeats what was sent, however long."""


def sentence(error: Exception) -> str:
    """Of a coded error by its code and values; any other has its sentence already."""
    return error.sentence(gettext, _fill) if isinstance(error, CodedError) else str(error)


class _Numbers(Formatter):
    """`{most:,}` as the reader's language groups: to a reader of German 8,784 is less than nine."""

    def format_field(self, value: object, format_spec: str) -> str:
        text = str(super().format_field(value, format_spec))
        return text.replace(",", locale().group) if format_spec == "," else text


def _fill(template: str, values: Mapping[str, object]) -> str:
    return _Numbers().vformat(template, (), values)
