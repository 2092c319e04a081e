"""Whether a VAT id can be one: its country's pattern and check digits. Whether it is registered, VIES knows."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

from django.utils.translation import gettext as _
from stdnum.eu import vat
from stdnum.exceptions import ValidationError

from billing.rules.supply import EU
from portal.excerpt import quoted

_FORM = re.compile("[A-Z]{2}[A-Z0-9]+")
_BESIDE_ISO = frozenset(("EL", "XI"))  # Greece, and Northern Ireland, whose goods are under the EU's VAT


def names_its_country(number: str) -> bool:
    """Whether a number without blanks begins with the code of a country, as a VAT id does: a tax number may not."""
    return bool(_FORM.fullmatch(number)) and number[:2] in _countries() | _BESIDE_ISO


@cache
def _countries() -> frozenset[str]:
    """ISO 3166-1, as the time zone data lists it."""
    listed = files("tzdata").joinpath("zoneinfo/iso3166.tab").read_text("utf-8").splitlines()
    return frozenset(line[:2] for line in listed if line and not line.startswith("#"))


def prefix(country: str) -> str:
    """What the VAT ids of a member state begin with: its code, but EL for Greece."""
    return "EL" if country == "GR" else country


def problem(vat_id: str, country: str) -> str:
    """What is wrong with the VAT id of somebody in that country, as the end of a sentence; "" for nothing.

    Those outside of the EU are not looked at, nor is an empty one.
    """
    if country not in EU or not vat_id:
        return ""
    begins = prefix(country)
    try:
        number = vat.compact(vat_id)
    except ValidationError:  # it begins with no member state's code
        number = ""
    if not number.startswith(begins):
        return _("is {vat_id}, and one of {country} begins with {begins}.").format(
            vat_id=quoted(vat_id), country=country, begins=begins
        )
    try:
        vat.validate(number)
    except ValidationError:
        text = _("is {vat_id}, which is no VAT id of {country}: its form or its check digits do not fit.")
        return text.format(vat_id=quoted(vat_id), country=country)
    return ""
