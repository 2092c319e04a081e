"""Opaque ids: `inv_` and 13 characters. Stable for ever, in no order, and the same wherever an object is named."""

from __future__ import annotations

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_VALUES = {letter: value for value, letter in enumerate(_ALPHABET)}
_SIZE = 1 << 64
# An odd factor maps the numbers below 2^64 onto themselves; it hides their order, not their value.
_FACTOR, _OFFSET = 0x9E3779B97F4A7C15, 0x632BE59BD9B4E019
_INVERSE = pow(_FACTOR, -1, _SIZE)


def write(kind: str, key: int) -> str:
    """The id of a row: `write("inv", 7)`."""
    number = (key * _FACTOR + _OFFSET) % _SIZE
    letters = [_ALPHABET[(number >> 5 * place) & 31] for place in range(12, -1, -1)]
    return f"{kind}_{''.join(letters)}"


def read(kind: str, text: str) -> int:
    """The row's key. Raises ValueError for what is no id of this kind."""
    head, _, body = text.partition("_")
    if head != kind or len(body) != 13 or not all(letter in _VALUES for letter in body):
        raise ValueError(f"It is no id of the kind {kind}.")
    number = 0
    for letter in body:
        number = number << 5 | _VALUES[letter]
    key = (number - _OFFSET) * _INVERSE % _SIZE
    if number >= _SIZE or key >= _SIZE >> 1:
        raise ValueError(f"It is no id of the kind {kind}.")
    return key
