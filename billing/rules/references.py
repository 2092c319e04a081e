"""References of payments: made for those who pay by bank transfer, and found again in what they wrote.

A creditor reference (ISO 11649) is `RF`, two check digits by modulus 97 and up to 21 letters and digits: a typing
mistake in one is seen. Banks break, join and shorten what payers write, so numbers are looked for without regard
to separators.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

from stdnum import iso11649
from stdnum.iso7064 import mod_97_10

WALLET = "WALLET"
"""What the body of a wallet's reference begins with; its number follows."""

_SEPARATORS = re.compile(r"[\W_]+", re.ASCII)
_REFERENCE = re.compile(r"RF[\W_]*\d[\W_]*\d(?:[\W_]*[A-Z0-9]){1,21}", re.ASCII)
_LONGEST = 2_000  # characters of a text that are looked at: a transfer has 140, a batch may join some


def creditor_reference(name: str) -> str:
    """`RF16INV20260001` for `INV-2026-0001`; "" for a name that has no place in one."""
    body = re.sub(r"[\s\-./_]+", "", name).upper()
    if not re.fullmatch("[A-Z0-9]{1,21}", body, re.ASCII):
        return ""
    return f"RF{mod_97_10.calc_check_digits(f'{body}RF')}{body}"


def in_groups(reference: str) -> str:
    """In groups of four, as it is printed: `RF16 INV2 0260 001`."""
    return " ".join(reference[at : at + 4] for at in range(0, len(reference), 4))


def numbers_in(texts: Iterable[str], series: Iterable[str]) -> list[str]:
    """The numbers of documents that the texts name for sure, each once, as they are written on invoices.

    `series`: what numbers begin with, `INV-2026`. By a creditor reference whose check digits are right, or by the
    number itself as a word of its own.
    """
    names = tuple(sorted(series))
    numbers: dict[str, None] = {}
    for text in texts:
        beginning = text[:_LONGEST].upper()
        for body in _bodies(beginning):
            for name in names:
                rest = body.removeprefix(_compact(name))
                if rest != body and (number := _number(name, rest)):
                    numbers[number] = None
        for name in names:
            for match in _written(name).finditer(beginning):
                if number := _number(name, _digits(match[1])):
                    numbers[number] = None
    return list(numbers)


def wallets_in(texts: Iterable[str]) -> list[int]:
    """The wallets that the texts name by a creditor reference whose check digits are right."""
    ids: dict[int, None] = {}
    for text in texts:
        for body in _bodies(text[:_LONGEST].upper()):
            rest = body.removeprefix(WALLET)
            if rest != body and rest.isdecimal() and rest.isascii() and len(rest) < 16:
                ids[int(rest)] = None
    return list(ids)


def _bodies(text: str) -> Iterator[str]:
    """What stands behind the check digits of each reference; each beginning of it that they are right for.

    Where it ends cannot be seen in a text without separators, so what goes on is tried without its end.
    """
    for match in _REFERENCE.finditer(text):
        whole = _compact(match[0])
        for end in range(len(whole), 4, -1):
            if iso11649.is_valid(whole[:end]):
                yield whole[4:end]


@lru_cache(maxsize=256)
def _written(series: str) -> re.Pattern[str]:
    spread = r"[\W_]*".join(re.escape(character) for character in _compact(series))
    return re.compile(rf"(?<![A-Z0-9]){spread}[\W_]*(\d(?: ?\d)*)", re.ASCII)


def _digits(run: str) -> str:
    """The digits of a number that a line's end may have broken; what follows a whole one is something else."""
    pieces = run.split(" ")
    joined = pieces.pop(0)
    while pieces and len(joined) < 4:
        joined += pieces.pop(0)
    return joined


def _number(series: str, digits: str) -> str:
    """As numbers are written: four digits, and more only without noughts before them."""
    if not (digits.isdecimal() and digits.isascii() and 4 <= len(digits) <= 10):
        return ""
    return f"{series}-{digits}" if len(digits) == 4 or digits[0] != "0" else ""


def _compact(text: str) -> str:
    return _SEPARATORS.sub("", text).upper()
