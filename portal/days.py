"""The days that forms take: with a day, a month or a zone's hours more or less they are still in the calendar."""

from __future__ import annotations

from datetime import date
from typing import Final

from django.core.exceptions import ValidationError
from django.utils.translation import gettext, gettext_noop

FIRST_YEAR: Final = 1971
LAST_YEAR: Final = 8999
NO_DAY: Final = gettext_noop("Enter the day like 2026-03-01, in the years 1971 to 8999.")


def is_in_range(day: date) -> bool:
    """Whether a form takes the day, or the moment."""
    return FIRST_YEAR <= day.year <= LAST_YEAR


def check_day(day: date) -> None:
    """A validator of a form's field, of days or of moments."""
    if not is_in_range(day):
        raise ValidationError(gettext(NO_DAY))
