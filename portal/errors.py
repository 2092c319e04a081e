"""An error below the edges says what happened by a code and values; the edge says its sentence. It imports nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar


def compose(
    sentences: Mapping[str, str],
    code: str,
    values: Mapping[str, object],
    translate: Callable[[str], str] = str,
    fill: Callable[[str, Mapping[str, object]], str] = str.format_map,
) -> str:
    """The sentence of that code with its values filled in, in English where nothing translates.

    What an older release has stored is said as far as it can be: a code without a sentence is one itself, and a
    missing value is an ellipsis. A value that is an error is said in the same language.
    """
    template = sentences.get(code)
    if template is None:
        return code
    texts = {
        name: value.sentence(translate, fill) if isinstance(value, CodedError) else value
        for name, value in values.items()
    }
    return fill(translate(template), _Values(texts))


def storable(values: Mapping[str, object]) -> dict[str, object]:
    """The values for a column of JSON: whole numbers, and texts with what no database stores written out."""
    return {
        name: value
        if isinstance(value, int)
        else str(value).replace("\x00", "\\x00").encode("utf-8", "backslashreplace").decode()
        for name, value in values.items()
    }


class CodedError(Exception):
    """A stable `code` with its `values`. The class of each boundary names the table that has its sentences.

    As text it is its sentence in English, for logs and what is stored; `portal.sentences.sentence` says it to people.
    """

    sentences: ClassVar[Mapping[str, str]] = {}

    def __init__(self, code: str, /, **values: object) -> None:
        super().__init__(code)
        self.code = code
        self.values = values

    def __str__(self) -> str:
        return self.sentence()

    def sentence(
        self,
        translate: Callable[[str], str] = str,
        fill: Callable[[str, Mapping[str, object]], str] = str.format_map,
    ) -> str:
        return compose(self.sentences, self.code, self.values, translate, fill)


class _Values(dict[str, object]):
    def __missing__(self, name: str) -> str:
        return "…"
