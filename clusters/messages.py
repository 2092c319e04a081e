"""What the edges say of an error from below: its sentence, in the language of whoever reads it."""

from __future__ import annotations

from django.utils.translation import gettext

from clusters.connectors import messages
from clusters.connectors.base import ConnectorError


def sentence(error: Exception) -> str:
    """A connector's error by its code and values; any other has its sentence already."""
    if isinstance(error, ConnectorError):
        return messages.sentence(error.code, error.values, translate=gettext)
    return str(error)
