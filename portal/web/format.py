"""How the pages write amounts, quantities and moments; nothing else of the pages formats any."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from zoneinfo import ZoneInfo

from babel.dates import format_date
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop, ngettext

from billing.models import BillingPeriod
from billing.rules.formatting import (
    currency_symbol,
    grouped,
    hours_text,
    localized,
    money_text,
    price_text,
)
from billing.rules.meters import AnyMeter, CustomMeter, Meter
from billing.rules.money import Money, exponent, rounded_text
from billing.rules.period import Period, label
from portal.locales import ENGLISH, current, locale

TINY = 6  # decimals of what is too small for its currency's own
NOTHING = "–"
THOUSAND = 1000
UTC_ZONE = ZoneInfo("UTC")
DAYS = 1_500  # days whose names are remembered
COUNTED = {
    Meter.GPU_HOUR: gettext_noop("GPU-seconds"),
    Meter.CPU_CORE_HOUR: gettext_noop("millicore-seconds"),
    Meter.MEMORY_GIB_HOUR: gettext_noop("MiB-seconds"),
    Meter.GPU_MEMORY_GIB_HOUR: gettext_noop("MiB-seconds"),
    Meter.BILLING_HOUR: gettext_noop("billing-seconds"),
}


def money(amount: Money) -> str:
    """`$1,234.50`, rounded for display; what would round to nothing keeps up to six decimals: `$0.000556`."""
    shown = amount.rounded()
    if shown.amount or not amount.amount:
        return money_text(shown)
    text = rounded_text(amount.amount, TINY)
    return price_text(Decimal(text), amount.currency) if text.strip("-0.") else f"< {_least(amount.currency)}"


def sums(amounts: Iterable[Money]) -> str:
    """One amount for each currency: `$12.00 + €3.00`; a dash for none."""
    return " + ".join(money(amount) for amount in amounts) or NOTHING


def minor(units: int, currency: str) -> str:
    return money_text(Money.from_minor(units, currency))


def exact_money(amount: Money) -> str:
    """Before rounding: all decimals up to six, `≈` where there are more."""
    text = rounded_text(amount.amount, TINY)
    shown = price_text(Decimal(text), amount.currency)
    return shown if Fraction(text) == amount.amount else f"≈ {shown}"


def price(unit_price: Decimal | None, currency: str) -> str:
    return price_text(unit_price, currency)


def symbol(currency: str) -> str:
    """What stands at the numbers of an axis: `$`."""
    return currency_symbol(currency)


def hours(resource_seconds: Fraction) -> str:
    """`1,234.20`: two decimals, so that a column of them lines up."""
    text = f"{Decimal(rounded_text(resource_seconds / 3600, 2)):,.2f}"
    return localized("< 0.01" if text == "0.00" and resource_seconds > 0 else text)


def part_hours(rounded: Fraction, resource_seconds: Fraction) -> str:
    """As `hours`, of what is rounded together with others so that they add up."""
    return hours(rounded or min(resource_seconds, Fraction(1)))


def long_hours(resource_seconds: Fraction) -> str:
    """`12.333333`: up to six decimals, as on the invoice."""
    return hours_text(resource_seconds)


def quantity(units: Fraction) -> str:
    """`12.5`: units of a declared meter, up to six decimals as on the invoice."""
    return grouped(rounded_text(units, 6))


def fraction(units: Fraction) -> str:
    """Exact: `12.5`, or a fraction where no decimals tell it: `1,000,001/730,000`."""
    if 10**9 % units.denominator == 0:
        return grouped(rounded_text(units, 9))
    return f"{whole(units.numerator)}/{whole(units.denominator)}"


def seconds(resource_seconds: Fraction) -> str:
    """Exact: `57,600`, or a fraction where it is no whole number of seconds: `57,600/7`."""
    text = whole(resource_seconds.numerator)
    return text if resource_seconds.denominator == 1 else f"{text}/{resource_seconds.denominator}"


def gpus(count: int, model: str, mig_profile: str, share: Fraction) -> str:
    """`16 × H100`, `3 × 1g.5gb of A100`, `3 × 1/7 × A100`; "" for none."""
    if not count:
        return ""
    model = model or "GPU"
    if mig_profile:
        return _("%(count)s × %(profile)s of %(model)s") % {
            "count": count,
            "profile": mig_profile,
            "model": model,
        }
    return f"{count} × {model}" if share == 1 else f"{count} × {share} × {model}"


def gpu_count(count: Fraction) -> str:
    """`46`, or two decimals where slices make no whole number of GPUs."""
    return whole(count.numerator) if count.denominator == 1 else hours(count * 3600)


def usage(units: int, share: Fraction, meter: AnyMeter) -> str:
    """Seconds × units as they were counted, and what makes the meter's seconds of them."""
    return f"{whole(units)} {counted_in(share, meter)}"


def counted_in(share: Fraction, meter: AnyMeter) -> str:
    """`GPU-seconds × 1/7`, `millicore-seconds ÷ 1,000`, `MiB-seconds ÷ 1,024`; of a sum its unit."""
    if isinstance(meter, CustomMeter):
        return meter.unit
    if share == 1:
        return _(COUNTED[meter])
    turned = f"× {share}" if meter == Meter.GPU_HOUR else f"÷ {whole(share.denominator)}"
    return f"{_(COUNTED[meter])} {turned}"


def whole(number: int) -> str:
    return localized(f"{number:,}")


def counted(number: int, noun: str) -> str:
    """`1 job`, `1,204 jobs`; of the nouns in `portal.web.nouns`."""
    return f"{whole(number)} {ngettext(noun, f'{noun}s', number)}"


def size(count: int) -> str:
    """Of a file: `817 B`, `4.2 MB`, in steps of a thousand."""
    value, unit = Fraction(count), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if value < THOUSAND:
            break
        value, unit = value / THOUSAND, larger
    return f"{localized(rounded_text(value, 1))} {unit}"


def plain(value: Fraction) -> str:
    """A number for a chart to draw."""
    return rounded_text(value, TINY)


def percent(part: Fraction, of: Fraction) -> str:
    """`34.5 %`; a dash of nothing."""
    return f"{localized(rounded_text(part * 100 / of, 1))} %" if of else NOTHING


def inside(label: str) -> str:
    """A label as it stands inside a sentence: `user`, `GPU model`; German keeps the capitals of its nouns."""
    is_kept = current() != ENGLISH or label[:2].isupper()
    return label if is_kept else label[:1].lower() + label[1:]


def at_second(second: int | None, zone: ZoneInfo) -> str:
    """As `moment`, of a second since 1970; "" for none."""
    return "" if second is None else moment(datetime.fromtimestamp(second, UTC), zone)


def moment(at: datetime, zone: ZoneInfo) -> str:
    """`20 Nov 2026, 08:00`"""
    try:
        local = at.astimezone(zone)
    except (
        OverflowError
    ):  # a file may say "for ever" as 9999-12-31, and in zones east of it the calendar is over
        local = at
    return f"{day(local.date())}, {local:%H:%M}"


def day(on: date) -> str:
    """`20 Nov 2026`"""
    return _day(on, locale().day, locale().name)


def short_day(on: date) -> str:
    """`20 Nov`"""
    return _day(on, locale().short_day, locale().name)


@lru_cache(DAYS)
def _day(on: date, pattern: str, locale_name: str) -> str:
    return format_date(on, pattern, locale=locale_name)


def month_name(on: date) -> str:
    """`November 2026`"""
    return _day(on, "MMMM y", locale().name)


def second(at: datetime, zone: ZoneInfo) -> str:
    """`20 Nov 2026, 08:00:59`"""
    local = at.astimezone(zone)
    return f"{day(local.date())}, {local:%H:%M:%S}"


def duration(seconds: int) -> str:
    """`04:12:30`, `2 d 04:12:30`."""
    days, rest = divmod(seconds, 86_400)
    clock = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    return _("%(days)s d %(clock)s") % {"days": days, "clock": clock} if days else clock


def age(since: datetime, *, now: datetime) -> str:
    """How long ago, in the largest unit that fits: `2 min`, `3 days`."""
    passed = max(now - since, timedelta(0))
    for unit, noun in ((timedelta(days=1), "day"), (timedelta(hours=1), "hour")):
        if passed >= unit:
            return counted(passed // unit, noun)
    return f"{passed // timedelta(minutes=1)} min"


def period(of: BillingPeriod) -> str:
    """`November 2026`, or the first and last day where it is no whole month."""
    return span(of.start, of.end, of.timezone)


def period_key(of: BillingPeriod) -> str:
    """A period in an address: its first day, `2026-11-01`."""
    return of.start.astimezone(ZoneInfo(of.timezone)).date().isoformat()


def span(start: datetime, end: datetime, timezone: str) -> str:
    return label(Period(start.astimezone(UTC_ZONE), end.astimezone(UTC_ZONE)), ZoneInfo(timezone))


def _least(currency: str) -> str:
    return price_text(Decimal(1).scaleb(-max(TINY, exponent(currency))), currency)
