"""What a wallet holds, computed apart from its jobs and grants, as docs/explanation/wallets.md says.

It shares no line with the product and imports nothing of it (a test sees to that). It knows nothing of what was booked
when: it is given the end of the story alone, and goes through its days once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from zoneinfo import ZoneInfo

DAY, HOUR = timedelta(days=1), timedelta(hours=1)


@dataclass(frozen=True)
class Job:
    """Use of [start, end), at so many whole units of the currency in a second."""

    start: datetime
    end: datetime
    a_second: Fraction


@dataclass(frozen=True)
class Gift:
    """Credit by hand: amounts in smallest units, `back` of it was taken back."""

    name: str
    at: datetime
    amount: int
    priority: int = 100
    expires: date | None = None
    back: int = 0


@dataclass(frozen=True)
class Rule:
    """A grant that comes again; `cap` None: it has none."""

    name: str
    every: str
    amount: int
    cap: int | None = None
    priority: int = 100
    lasts: int | None = None


@dataclass(frozen=True)
class Story:
    """All that there is of a wallet. `smallest`: units in one of its currency."""

    zone: str
    opened: datetime
    now: datetime
    smallest: int
    jobs: Sequence[Job] = ()
    gifts: Sequence[Gift] = ()
    rules: Sequence[Rule] = ()
    spent: Sequence[tuple[datetime, int]] = ()


@dataclass
class Pot:
    """A grant that was given."""

    name: str
    at: datetime
    day: date
    priority: int
    expires: date | None
    granted: int
    left: int = 0
    gone: int = 0


@dataclass
class Wallet:
    """How it stands: by grant what was given, is left and has expired; and by service day what is owed."""

    pots: list[Pot] = field(default_factory=list)
    debts: dict[date, int] = field(default_factory=dict)

    @property
    def balance(self) -> int:
        return sum(pot.left for pot in self.pots) - sum(self.debts.values())


def wallet(story: Story) -> Wallet:
    """The wallet at the end of its story."""
    zone = ZoneInfo(story.zone)
    state = Wallet()
    days = [gift.at for gift in story.gifts] + [job.start for job in story.jobs] + [story.opened]
    day = min(at.astimezone(zone).date() for at in days)
    last = max([story.now, *(job.end for job in story.jobs)]).astimezone(zone).date()
    while day <= last:
        if day <= story.now.astimezone(zone).date():
            _expire(state, day)
        for at, order, what in sorted(_grants_on(story, day, zone), key=lambda change: change[:2]):
            del order
            _give(story, state, day, at, what)
        spent = sum(amount for at, amount in story.spent if at.astimezone(zone).date() == day)
        _take(state, day, _use(story, _midnight(day, zone), _midnight(day + DAY, zone)) + spent)
        day += DAY
    return state


def _midnight(day: date, zone: ZoneInfo) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=zone).astimezone(UTC)


def _use(story: Story, since: datetime, until: datetime) -> int:
    """What is used in a time, in smallest units: a half upwards."""
    exact = sum(
        (
            job.a_second * int(max(timedelta(0), min(job.end, until) - max(job.start, since)).total_seconds())
            for job in story.jobs
        ),
        Fraction(0),
    )
    return int((exact * story.smallest + Fraction(1, 2)) // 1)


def _grants_on(
    story: Story, day: date, zone: ZoneInfo
) -> Iterable[tuple[datetime, tuple[bool, str], Gift | Rule]]:
    for gift in story.gifts:
        if gift.at.astimezone(zone).date() == day and gift.at <= story.now:
            yield gift.at, (False, gift.name), gift
    for rule in story.rules:
        for at in _instants(story, rule, day, zone):
            if at <= story.now:
                yield at, (rule.cap is not None, f"{rule.name} {at:%Y-%m-%dT%H:%MZ}"), rule


def _instants(story: Story, rule: Rule, day: date, zone: ZoneInfo) -> Iterable[datetime]:
    start, end = _midnight(day, zone), _midnight(day + DAY, zone)
    if start <= story.opened < end:
        yield story.opened
    borders = []
    if rule.every == "hour":
        first = start.replace(minute=0, second=0)
        borders = [first + HOUR * place for place in range(27)]
    if rule.every == "day" or (rule.every == "month" and day.day == 1):
        borders = [start]
    yield from (at for at in borders if at > story.opened and start <= at < end)


def _give(story: Story, state: Wallet, day: date, at: datetime, what: Gift | Rule) -> None:
    if isinstance(what, Gift):
        pot = Pot(what.name, at, day, what.priority, what.expires, what.amount - what.back)
    else:
        amount = what.amount
        if what.cap is not None:
            amount = max(0, min(amount, what.cap - _seen(story, state, day, at)))
        ends = day + DAY * what.lasts if what.lasts else None
        pot = Pot(f"{what.name} {at:%Y-%m-%dT%H:%MZ}", at, day, what.priority, ends, amount)
    pot.left = pot.granted
    for owed in sorted(state.debts):
        paid = min(pot.left, state.debts[owed])
        pot.left -= paid
        state.debts[owed] -= paid
    state.pots.append(pot)


def _seen(story: Story, state: Wallet, day: date, at: datetime) -> int:
    """The balance at that instant: of the day itself, only hours that ended and what was spent by then."""
    zone = ZoneInfo(story.zone)
    begin = _midnight(day, zone)
    hours = at.replace(minute=0, second=0)
    so_far = _use(story, begin, hours) if hours > begin else 0
    spent = sum(amount for when, amount in story.spent if begin <= when <= at)
    return state.balance - so_far - spent


def _take(state: Wallet, day: date, amount: int) -> None:
    order = sorted(state.pots, key=lambda pot: (pot.priority, pot.expires or date.max, pot.at, pot.name))
    for pot in order:
        if pot.day <= day and (pot.expires is None or day < pot.expires):
            paid = min(pot.left, amount)
            pot.left -= paid
            amount -= paid
    if amount:
        state.debts[day] = state.debts.get(day, 0) + amount


def _expire(state: Wallet, day: date) -> None:
    for pot in state.pots:
        if pot.expires is not None and pot.expires + 3 * DAY <= day:
            pot.gone, pot.left = pot.gone + pot.left, 0


@dataclass(frozen=True)
class Charge:
    """An invoice without tax that is paid by the wallet first: by service day what was used, in smallest units."""

    used: tuple[tuple[date, int], ...]
    credited: int = 0  # of it later, by a credit note, when nothing but the wallet had paid


def paid_first(pots: list[Pot], charges: Iterable[Charge]) -> list[tuple[int, int]]:
    """Of each charge, in order, what the wallet pays when it is issued, and what a credit note gives back."""
    payments = []
    for charge in charges:
        drawdowns: dict[str, int] = {}
        for day, amount in charge.used:
            rest = amount
            for pot in sorted(
                pots, key=lambda pot: (pot.priority, pot.expires or date.max, pot.at, pot.name)
            ):
                part = min(pot.left, rest) if pot.expires is None or day < pot.expires else 0
                if part:
                    pot.left, rest = pot.left - part, rest - part
                    drawdowns[pot.name] = drawdowns.get(pot.name, 0) + part
        paid = sum(drawdowns.values())
        due = sum(amount for _, amount in charge.used) - paid
        back = rest = min(paid, max(0, charge.credited - due))
        for name in reversed(drawdowns):
            part = min(drawdowns[name], rest)
            rest -= part
            next(pot for pot in pots if pot.name == name).left += part
        payments.append((paid, back))
    return payments
