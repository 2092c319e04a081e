"""The hours of the week in which a price holds, as the file says them."""

from __future__ import annotations

from collections.abc import Callable

from django.core.exceptions import ValidationError

from billing.rules.hours import EVERY_DAY, Hours, HoursZone, Window, days_of, seconds_of
from portal.config_file.toml_table import Table


def read(table: Table) -> Hours | None:
    """`hours` of a price: one window or a list of them. None where there are none, or they are wrong."""
    errors = len(table.errors)
    table.given("hours")
    several = isinstance(table.data.get("hours"), list)
    if several:
        entries = table.tables("hours", lambda place, _: f"{table.name}, window {place} of its hours")
    else:
        entries = [table.table("hours")] if "hours" in table.data else []
    read = [_window(entry) for entry in entries]
    if several and not entries and len(table.errors) == errors:
        table.wrong("hours", "is an empty list; leave it out for a price that always holds.")
    zones = {zone for _, zone in read}
    if len(zones) > 1:
        table.wrong("hours", "tells its windows by two clocks; write the same zone in each.")
    if not entries or len(table.errors) > errors:
        return None
    return Hours(tuple(window for window, _ in read if window), HoursZone(zones.pop()))


def _window(entry: Table) -> tuple[Window | None, str]:
    days = entry.text("days", check=_such(days_of)) or EVERY_DAY
    begins = entry.text("from", check=_such(seconds_of)) or "00:00"
    ends = entry.text("to", check=_such(seconds_of)) or "24:00"
    zone = entry.choice("zone", list(HoursZone)) or HoursZone.TENANT.value
    entry.done()
    try:
        return Window(days_of(days), seconds_of(begins), seconds_of(ends) or seconds_of("24:00")), zone
    except ValueError as error:
        if not any(each.startswith(entry.name) for each in entry.errors):
            entry.errors.append(f"{entry.name}: {error}")
        return None, zone


def _such(read: Callable[[str], object]) -> Callable[[str], None]:
    def check(text: str) -> None:
        try:
            read(text)
        except ValueError as error:
            raise ValidationError(str(error)) from error

    return check
