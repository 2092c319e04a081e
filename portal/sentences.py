"""What the edges say of an error from below: its sentence, in the language of whoever reads it."""

from __future__ import annotations

from django.utils.translation import gettext

from portal.errors import CodedError


def sentence(error: Exception) -> str:
    """Of a coded error by its code and values; any other has its sentence already."""
    return error.sentence(gettext) if isinstance(error, CodedError) else str(error)
