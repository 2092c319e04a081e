"""`users_tokens.json` and `black_house.json`, as the public program GPU_token_manager writes them: read and checked.

The one is `{user: {"token_balance": number}}`, the other a list of the users whom the program keeps from GPUs.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

from billing.quotas.messages import SENTENCES
from billing.rules.money import TOKENS, Money
from portal.errors import CodedError
from portal.excerpt import quoted

MOST_BYTES = 4 << 20
MOST_USERS = 10_000
LONGEST_USER = 255
LARGEST = 10**9
"""Whole tokens of a balance at most, above zero or below."""
MOST_PLACES = 400
"""Of a balance as it is written; a float has fewer."""


class TokenFileError(CodedError):
    """The file cannot be what it is given for, so nothing of it is taken; the message says why."""

    sentences = SENTENCES


class TokenRowError(CodedError):
    """One user of a file is left out; the message says why."""

    sentences = SENTENCES


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A user of whom nothing was taken, and why."""

    user: str
    error: TokenRowError


@dataclass(frozen=True, slots=True)
class Balances:
    """By user smallest units of a token, rounded once; and who is left out."""

    rows: Mapping[str, int]
    left_out: Sequence[LeftOut]


def read_balances(data: bytes) -> Balances:
    """Of `users_tokens.json`. Raises TokenFileError."""
    content = _parsed(data, "users_tokens.json")
    if not isinstance(content, _Object):
        raise TokenFileError("token-file-no-object")
    twice = sorted(name for name, times in Counter(name for name, _ in content.pairs).items() if times > 1)
    if twice:
        raise TokenFileError("token-file-twice", user=quoted(twice[0]))
    _check_count(content.pairs)
    rows: dict[str, int] = {}
    left_out = []
    for user, entry in content.pairs:
        try:
            _check_user(user)
            rows[user] = _minor(entry)
        except TokenRowError as error:
            left_out.append(LeftOut(user, error))
    return Balances(rows, left_out)


def read_blocked(data: bytes) -> tuple[Sequence[str], Sequence[LeftOut]]:
    """Of `black_house.json`: the users, each once, and what names none. Raises TokenFileError."""
    content = _parsed(data, "black_house.json")
    if not isinstance(content, list):
        raise TokenFileError("token-file-no-list")
    _check_count(content)
    users: dict[str, None] = {}
    left_out = []
    for value in content:
        try:
            users[_check_user(value)] = None
        except TokenRowError as error:
            left_out.append(LeftOut(_words(value), error))
    return list(users), left_out


@dataclass(frozen=True, slots=True)
class _Object:
    """As it was written: JSON itself keeps the last of two keys that are the same."""

    pairs: Sequence[tuple[str, Any]]

    def get(self, name: str) -> Any:
        values = [value for key, value in self.pairs if key == name]
        return values[0] if len(values) == 1 else None


def _parsed(data: bytes, name: str) -> Any:
    if len(data) > MOST_BYTES:
        raise TokenFileError("token-file-large", name=name, most=MOST_BYTES >> 20)
    try:
        text = data.decode("utf-8-sig")
        return json.loads(
            text, object_pairs_hook=_Object, parse_float=Decimal, parse_int=Decimal, parse_constant=_refuse
        )
    except (ValueError, RecursionError, ArithmeticError) as error:
        raise TokenFileError("token-file-unreadable", name=name) from error


def _refuse(constant: str) -> None:
    """Python writes NaN and Infinity, which are no JSON and no balance."""
    raise ValueError(constant)


def _check_count(entries: Sequence[Any]) -> None:
    if len(entries) > MOST_USERS:
        raise TokenFileError("token-file-users", most=MOST_USERS, count=len(entries))


def _check_user(user: Any) -> str:
    if not isinstance(user, str) or not user.strip() or len(user) > LONGEST_USER or not user.isprintable():
        raise TokenRowError("token-user")
    return user


def _words(value: Any) -> str:
    """What stands in the place of a user, as a reader of the file finds it."""
    kinds = {_Object: "{…}", list: "[…]"}
    return kinds.get(type(value)) or str(value)[:LONGEST_USER]


def _minor(entry: Any) -> int:
    value = entry.get("token_balance") if isinstance(entry, _Object) else None
    if not isinstance(value, Decimal):
        raise TokenRowError("token-balance")
    exponent = value.as_tuple().exponent
    # Written out as a fraction, an exponent of a few characters takes gigabytes.
    if not isinstance(exponent, int) or abs(exponent) > MOST_PLACES or abs(value) > LARGEST:
        raise TokenRowError("token-balance-range", most=LARGEST)
    return Money(Fraction(value), TOKENS).rounded().minor
