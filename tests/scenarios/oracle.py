"""What the tenants of a real cluster owe, told a second time: by plain fractions over the accounting file.

It shares no line with the product and imports nothing of it (a test sees to that). It follows amounts.md and wallets.md
of docs/explanation in the plainest way there is: every job is read, cut at the
borders of months and of hours that cost something else, and added up.
"""

from __future__ import annotations

import calendar
import csv
import gzip
import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from functools import cache
from pathlib import Path
from zoneinfo import ZoneInfo

MINOR = {"USD": 100, "JPY": 1, "KWD": 1000, "TOK": 10**6}
"""Smallest units in one."""

WHOLE = {"gpu-hour": 1, "cpu-core-hour": 1, "memory-gib-hour": 1024}
"""In how many parts of a unit `Job.held` counts."""


@dataclass(frozen=True)
class Job:
    row: int  # its place in the file
    account: str
    user: str
    attributes: Mapping[str, str]  # queue, state, gpu_model
    start: int
    end: int  # epoch seconds, [start, end)
    quantities: Mapping[str, int]  # by meter: GPUs, cores, MiB
    busy: Mapping[int, tuple[Fraction, int]] = field(
        default_factory=dict
    )  # by hour: busy and seen GPU-seconds


@dataclass(frozen=True)
class Window:
    days: str  # of the week on which it begins, 0 being Monday: "01234"
    begins: str
    ends: str  # "06:30"; no later than it begins: on the next day


@dataclass(frozen=True)
class Price:
    meter: str
    tiers: tuple[tuple[str, str], ...]  # (up_to in hours, "" for the last; price of an hour)
    where: Mapping[str, str] = field(default_factory=dict)
    model: str = "per_unit"
    package: tuple[str, str] = ("", "")  # hours in one, and what it costs
    hours: tuple[Window, ...] = ()  # in which it holds, by the tenant's clock; none: always


@dataclass(frozen=True)
class Discount:
    percent: str = ""
    amount: str = ""
    since: date = date(1970, 1, 1)
    until: date = date(2100, 1, 1)


@dataclass(frozen=True)
class Plan:
    name: str
    currency: str
    prices: tuple[Price, ...]
    zone: str = "UTC"
    anchor: int = 1
    together: int = 1  # so many accounts are the projects of one tenant
    allowance: str = ""  # hours per period, shared by all prices
    rollover: bool = False
    fee: str = ""
    commitment: tuple[str, str] | None = None  # amount, overage factor
    discounts: tuple[Discount, ...] = ()
    grants: tuple[str, str] = ("", "")  # of each user's wallet: once, and at the start of every period


@dataclass(frozen=True)
class Month:
    name: str  # of the month in which it begins
    start: int
    end: int


@dataclass(frozen=True)
class Part:
    """A job's share in one month of one tenant, cut at the months of UTC too, and where windows open and close."""

    job: Job
    month: Month
    start: int
    end: int


def jobs(path: Path) -> list[Job]:
    """The jobs of a UTC sacct file that held anything for a second or more."""
    with gzip.open(path, "rt") as file:
        rows = list(csv.DictReader(file, delimiter="|", quoting=csv.QUOTE_NONE))
    return [job for number, row in enumerate(rows) if (job := _job(number, row)) is not None]


def _job(number: int, row: Mapping[str, str]) -> Job | None:
    seconds = _seconds(row)
    if not seconds:
        return None
    tres = dict(item.split("=") for item in row["AllocTRES"].split(",") if item)
    models = {
        name.partition(":")[2]: int(count) for name, count in tres.items() if name.startswith("gres/gpu:")
    }
    start = calendar.timegm(time.strptime(row["Start"], "%Y-%m-%dT%H:%M:%S"))
    quantities = {
        "gpu-hour": sum(models.values()),
        "cpu-core-hour": int(tres.get("cpu", "0")),
        "memory-gib-hour": _mebibytes(tres.get("mem", "0M")),
    }
    attributes = {"queue": row["Partition"], "state": row["State"].split()[0], "gpu_model": "".join(models)}
    return Job(number, row["Account"], row["User"], attributes, start, start + seconds, quantities)


def _seconds(row: Mapping[str, str]) -> int:
    if "ElapsedRaw" in row:
        return int(row["ElapsedRaw"])
    days, _, clock = row["Elapsed"].rpartition("-")
    hours, minutes, seconds = (int(part) for part in clock.split(":"))
    return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + seconds


def _mebibytes(text: str) -> int:
    exact = Fraction(text[:-1]) * {"M": 1, "G": 1024, "T": 1024 * 1024}[text[-1]]
    assert exact.denominator == 1, f"{text} is no whole number of MiB"
    return int(exact)


def tenants(plan: Plan, accounts: Iterable[str]) -> dict[str, str]:
    """account → tenant: so many in a row as the plan says are one, and it is called as the first of them."""
    names = sorted(accounts)
    return {name: names[place - place % plan.together] for place, name in enumerate(names)}


def months(plan: Plan, first: str, last: str) -> list[Month]:
    """The billing periods that begin in these months, whatever lies between them included."""
    year, number = (int(part) for part in first.split("-"))
    periods = []
    while (name := f"{year}-{number:02d}") <= last:
        after = (year + number // 12, number % 12 + 1)
        periods.append(Month(name, _begins(plan, year, number), _begins(plan, *after)))
        year, number = after
    return periods


def _begins(plan: Plan, year: int, month: int) -> int:
    day = min(plan.anchor, calendar.monthrange(year, month)[1])
    return _midnight(plan, date(year, month, day))


def _midnight(plan: Plan, day: date) -> int:
    return int(datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(plan.zone)).timestamp())


def owed(plan: Plan, work: Iterable[Job], periods: list[Month], since: date) -> dict[tuple[str, str], int]:
    """(tenant, month) → the invoice's total in smallest units; tenants are on the plan from that day on."""
    work = list(work)
    tenant_of = tenants(plan, {job.account for job in work})
    parts: dict[tuple[str, str], list[Part]] = defaultdict(list)
    borders = sorted({at for price in plan.prices for span in _open(plan, price, periods) for at in span})
    for job in work:
        for part in _cut(job, periods, borders):
            parts[tenant_of[job.account], part.month.name].append(part)
    begins = _midnight(plan, since)
    reach = (periods[0].start, periods[-1].end)
    amounts: dict[tuple[str, str], int] = {}
    for tenant in sorted(set(tenant_of.values())):
        left = Fraction(0)
        for month in periods:
            of_month = parts[tenant, month.name]
            share = Fraction(max(0, month.end - max(month.start, begins)), month.end - month.start)
            own = Fraction(plan.allowance or 0) * 3600 * share
            free, left = _included(plan, of_month, reach, own, left)
            use = _use(plan, of_month, reach, free)
            amounts[tenant, month.name] = _with_terms(plan, use, month, begins, share)
    return amounts


def _cut(job: Job, periods: list[Month], borders: list[int]) -> Iterator[Part]:
    for month in periods:
        start, end = max(job.start, month.start), min(job.end, month.end)
        while start < end:
            at = datetime.fromtimestamp(start, UTC)
            border = calendar.timegm((at.year + at.month // 12, at.month % 12 + 1, 1, 0, 0, 0))
            later = bisect_right(borders, start)
            stop = min(end, border, *borders[later : later + 1])
            yield Part(job, month, start, stop)
            start = stop


@cache
def _opens(zone: str, day: date, clock: str) -> int:
    """The first minute at which clocks show that time of that day, or a later one."""
    hour, minute = (int(part) for part in clock.split(":"))
    shown = datetime(day.year, day.month, day.day) + timedelta(hours=hour, minutes=minute)
    at = int(shown.replace(tzinfo=UTC).timestamp()) - 15 * 3600
    offset = datetime.fromtimestamp(at, ZoneInfo(zone)).utcoffset()
    assert offset is not None
    at = int(shown.replace(tzinfo=UTC).timestamp()) - int(offset.total_seconds()) - 3 * 3600
    while datetime.fromtimestamp(at, ZoneInfo(zone)).replace(tzinfo=None) < shown:
        at += 60
    return at


def _open(plan: Plan, price: Price, periods: list[Month]) -> list[tuple[int, int]]:
    """When its windows are open, in all of these months."""
    return _open_in(plan.zone, price.hours, periods[0].start, periods[-1].end)


@cache
def _open_in(zone: str, hours: tuple[Window, ...], since: int, until: int) -> list[tuple[int, int]]:
    spans = []
    day = datetime.fromtimestamp(since, UTC).date() - timedelta(days=3)
    while day <= datetime.fromtimestamp(until, UTC).date():
        for window in hours:
            if str(day.weekday()) in window.days:
                last = day + timedelta(days=1) if window.ends <= window.begins else day
                spans.append((_opens(zone, day, window.begins), _opens(zone, last, window.ends)))
        day += timedelta(days=1)
    return sorted(spans)


def _holds(plan: Plan, price: Price, periods: tuple[int, int], at: int) -> bool:
    """Whether it holds at that second."""
    if not price.hours:
        return True
    spans = _open_in(plan.zone, price.hours, *periods)
    near = bisect_right(spans, (at, 2**60))
    return any(start <= at < end for start, end in spans[max(0, near - 3) : near])


def _price(
    plan: Plan, job: Job, meter: str, at: tuple[tuple[int, int], int] | None = None, use: str = "unknown"
) -> int | None:
    """The place of the price that holds; None where nothing charges it.

    One with hours before one without, then the one with the most selectors, then the first of equals. `at` is the
    second, after the months that are looked at.
    """
    attributes = {**job.attributes, "use": use}
    fits = [
        (not price.hours, -len(price.where), place)
        for place, price in enumerate(plan.prices)
        if price.meter == meter
        and all(attributes[key] == value for key, value in price.where.items())
        and (at is None or _holds(plan, price, *at))
    ]
    return min(fits)[2] if fits else None


def _charged_seconds(plan: Plan, part: Part, reach: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """(place of a price, GPU-, core- or MiB-seconds)"""
    for meter, quantity in part.job.quantities.items():
        for use, seconds in _uses(part, meter, quantity):
            place = _price(plan, part.job, meter, (reach, part.start), use)
            if quantity and place is not None:
                yield place, seconds


def _uses(part: Part, meter: str, quantity: int) -> list[tuple[str, int]]:
    """(use, seconds): an hour's part is what was seen up to its end less what was up to its start."""
    seen = busy = 0
    for hour in part.job.busy if meter == "gpu-hour" else ():
        (more, worked), (less, before) = (_seen(part.job, hour, at) for at in (part.end, part.start))
        seen, busy = seen + more - less, busy + worked - before
    seconds = quantity * (part.end - part.start)
    uses = [("busy", busy), ("idle", seen - busy), ("unknown", seconds - seen)]
    return uses if seen else uses[2:]


def _seen(job: Job, hour: int, upto: int) -> tuple[int, int]:
    """Whole GPU-seconds of the hour up to that instant: those that were seen, and those of them that were busy."""
    worked, covered = job.busy[hour]
    since, until = max(job.start, hour), min(job.end, hour + 3600)
    whole, part = (job.quantities["gpu-hour"] * max(0, at - since) for at in (until, min(until, upto)))
    seen = min(covered, whole) * part // whole
    return seen, worked * seen // covered


def _included(
    plan: Plan, parts: list[Part], reach: tuple[int, int], own: Fraction, carried: Fraction
) -> tuple[dict[int, Fraction], Fraction]:
    """By price the seconds that cost nothing, in order of time; and what the next month has on top."""
    free: dict[int, Fraction] = defaultdict(Fraction)
    if not own:
        return free, Fraction(0)
    remaining = own + carried
    used = Fraction(0)
    for part in sorted(parts, key=lambda part: (part.start, part.job.row, part.end)):
        for place, seconds in _charged_seconds(plan, part, reach):
            free_seconds = min(Fraction(seconds), remaining)
            free[place] += free_seconds
            remaining -= free_seconds
            used += seconds
    left = own - max(Fraction(0), min(own, used - carried))
    return free, left if plan.rollover else Fraction(0)


def _use(plan: Plan, parts: list[Part], reach: tuple[int, int], free: Mapping[int, Fraction]) -> int:
    """What the prices come to: each line rounded, a price over the total as one."""
    used: dict[int, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for part in parts:
        for place, seconds in _charged_seconds(plan, part, reach):
            used[place][part.job.account] += seconds
    whole = 0
    for place, by_project in used.items():
        price = plan.prices[place]
        hours = {name: Fraction(seconds, 3600 * WHOLE[price.meter]) for name, seconds in by_project.items()}
        if price.model == "per_unit" and not plan.allowance:
            whole += sum(smallest(amount(price, one), plan.currency) for one in hours.values())
        else:
            billable = sum(hours.values(), Fraction(0)) - free.get(place, Fraction(0)) / 3600
            whole += smallest(amount(price, billable), plan.currency)
    return whole


def amount(price: Price, hours: Fraction) -> Fraction:
    """What so many hours cost, exact, in whole units of the currency."""
    if price.model == "package":
        size, cost = (Fraction(text) for text in price.package)
        return -(-hours // size) * cost
    if price.model == "volume":
        return hours * next(
            Fraction(tier_price) for up_to, tier_price in price.tiers if not up_to or hours <= Fraction(up_to)
        )
    whole, below = Fraction(0), Fraction(0)
    for up_to, tier_price in price.tiers:
        top = min(hours, Fraction(up_to)) if up_to else hours
        whole += max(Fraction(0), top - below) * Fraction(tier_price)
        below = max(below, top)
    return whole


def _with_terms(plan: Plan, use: int, month: Month, begins: int, share: Fraction) -> int:
    """Use, commitment and fee, less each discount after the other; each a line, rounded."""
    whole = use
    if plan.fee:
        whole += smallest(Fraction(plan.fee) * share, plan.currency)
    if plan.commitment is not None:
        floor, factor = (Fraction(text) for text in plan.commitment)
        above = Fraction(use, MINOR[plan.currency]) - floor * share
        whole += smallest(above * (factor - 1) if above > 0 else -above, plan.currency)
    for discount in plan.discounts:
        start = max(month.start, begins, _midnight(plan, discount.since))
        seconds = max(0, min(month.end, _midnight(plan, discount.until)) - start)
        whole_time = month.end - (max(month.start, begins) if discount.percent else month.start)
        part = Fraction(seconds, whole_time) if seconds else Fraction(0)
        off = (
            Fraction(whole, MINOR[plan.currency]) * Fraction(discount.percent) / 100
            if discount.percent
            else Fraction(discount.amount)
        )
        whole -= min(whole, smallest(off * part, plan.currency))
    return whole


def wallet_days(plan: Plan, work: Iterable[Job]) -> dict[tuple[str, str, date], int]:
    """(tenant, user, service day) → what is taken from the user's wallet, in smallest units."""
    zone = ZoneInfo(plan.zone)
    exact: dict[tuple[str, str, date], Fraction] = defaultdict(Fraction)
    work = list(work)
    tenant_of = tenants(plan, {job.account for job in work})
    for job in work:
        start, a_second = job.start, _a_second(plan, job)
        while a_second and start < job.end:
            day = datetime.fromtimestamp(start, zone).date()
            border = min(job.end, _midnight(plan, day + timedelta(days=1)))
            exact[tenant_of[job.account], job.user, day] += a_second * (border - start)
            start = border
    return {owner: smallest(whole, plan.currency) for owner, whole in exact.items()}


def _a_second(plan: Plan, job: Job) -> Fraction:
    """What a second of the job costs at prices per unit."""
    whole = Fraction(0)
    for meter, quantity in job.quantities.items():
        place = _price(plan, job, meter)
        if quantity and place is not None:
            whole += amount(plan.prices[place], Fraction(quantity, WHOLE[meter] * 3600))
    return whole


def smallest(value: Fraction, currency: str) -> int:
    """The nearest smallest unit of a value that is not negative, a half upwards."""
    assert value >= 0
    return (value * MINOR[currency] + Fraction(1, 2)).__floor__()
