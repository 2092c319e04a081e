"""What an operator may write between the braces of a selector."""

from __future__ import annotations

import re

from clusters.connectors.base import ConnectorError
from portal.excerpt import quoted

_MATCHER = re.compile(r'\s*[a-zA-Z_]\w*\s*(?:=~|!~|!=|=)\s*"(?:[^"\\\n]|\\.)*"\s*', re.ASCII)


def refuse_other(text: str) -> None:
    """Raise `ConnectorError` for what is no matcher, nor several with commas between, nor empty."""
    if text and not _is_matcher(text):
        raise ConnectorError("option-matcher", retry=False, matcher=quoted(text))


def _is_matcher(text: str) -> bool:
    """Whether it can stand between the braces of a selector, and does nothing else there."""
    at = 0
    while match := _MATCHER.match(text, at):
        at = match.end()
        if at == len(text):
            return True
        if text[at] != ",":
            return False
        at += 1
    return False
