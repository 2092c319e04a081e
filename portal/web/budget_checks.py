"""What can be wrong with one field of a budget's form, by the rules of the file, in the reader's language.

The file's own sentences are in English and call fields by their keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from enum import Enum

from django.utils.translation import gettext as _

from billing.rules.errors import RuleError
from billing.rules.formatting import grouped
from billing.rules.money import decimal_of
from portal.config_file.entries import Field, fields_of
from portal.config_file.quotas import QuotaEntry
from portal.config_file.toml_values import FIRST_DAY
from portal.excerpt import quoted


def check_fields(values: Mapping[str, object], labels: Mapping[str, str]) -> None:
    """Raises ValueError with a sentence for each field that its rule refuses; `values` by key, as for a file."""
    sentences = [
        f"{labels.get(field.key, field.key)}: {problem}"
        for field in fields_of(QuotaEntry)
        if (problem := _problem(field, values.get(field.key)))
    ]
    if sentences:
        raise ValueError(" ".join(sentences))


def _problem(field: Field, value: object) -> str:
    """What is wrong and what to do; "" for nothing."""
    if value is None or value == "":
        return _("This field is empty. Fill it in.") if field.required else ""
    if isinstance(value, list):
        unprintable = [one for one in value if not str(one).isprintable()]
        return _("It has control characters in it. Type it again.") if unprintable else ""
    if isinstance(value, date):
        first = f"{FIRST_DAY}"
        return _("Write a day from {first} on.").format(first=first) if value < FIRST_DAY else ""
    if isinstance(value, int) and not isinstance(value, bool):
        lowest, highest = field.rule.lowest, field.rule.highest
        text = _("Write a whole number from {lowest} to {highest}.")
        is_within = lowest <= value <= highest
        return "" if is_within else text.format(lowest=grouped(str(lowest)), highest=grouped(str(highest)))
    return _text_problem(field, value) if isinstance(value, str) else ""


def _text_problem(field: Field, text: str) -> str:
    if field.kind is Decimal:
        return _number_problem(text)
    if isinstance(field.kind, type) and issubclass(field.kind, Enum):
        choices = {member.value for member in field.kind}
        return "" if text in choices else _("Choose one of those that are offered.")
    if not text.isprintable():
        return _("It has control characters in it. Type it again.")
    if len(text) > field.rule.longest:
        sentence = _("It has {count} characters, and {most} fit. Shorten it.")
        return sentence.format(count=len(text), most=field.rule.longest)
    return ""


def _number_problem(text: str) -> str:
    try:
        decimal_of(text)
    except RuleError:
        return _("{text} is no number. Write it like 500.00.").format(text=quoted(text))
    return ""
