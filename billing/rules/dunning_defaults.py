"""What follows when an invoice is not paid, day by day after it was due; plain values, no clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from datetime import date, datetime, time, timedelta
from enum import StrEnum
from itertools import accumulate, pairwise
from operator import sub
from zoneinfo import ZoneInfo

LONGEST = 3650
"""Days after due that a policy may speak of."""
HOLDS = timedelta(days=14)
"""So long after the day that it names an announcement still holds, where no suspension followed meanwhile."""
MORNING = timedelta(hours=8)
"""A day of dunning begins at eight in the morning where the invoice was issued, when people are up to read it."""
LATER = timedelta(minutes=15)
"""After it began, its e-mails go out."""


class Step(StrEnum):
    """In the order in which those of one day happen."""

    PAST_DUE = "past-due"
    REMINDER = "reminder"
    ANNOUNCE = "announce"
    SUSPEND = "suspend"
    WRITE_OFF = "write-off"


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Days are civil days after the day on which an invoice was due."""

    emails: bool = True  # False: the tenant is written nothing at all
    receipts: bool = True  # an e-mail for each payment
    payment_links: bool = False  # reminders have a link that pays without signing in
    retries: tuple[int, ...] = (3, 5, 7)  # days to the next try after the first, second, third refusal
    reminders: tuple[int, ...] = (3, 10, 21)
    past_due: int = 1  # from this day on it counts as past due
    suspend: int = 0  # from this day on no GPU job of the tenant starts; 0: never
    announce: int = 7  # days before that the tenant is told; 0: it is not
    write_off: int = 90  # when it is proposed to the operator; 0: never

    @property
    def suspends(self) -> bool:
        return self.suspend > 0

    @property
    def announces(self) -> bool:
        return self.suspends and self.announce > 0


DEFAULTS = Policy()


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What one version of a policy says, from a day on; None: as the one below it says."""

    since: date
    emails: bool | None = None
    receipts: bool | None = None
    payment_links: bool | None = None
    retries: tuple[int, ...] | None = None
    reminders: tuple[int, ...] | None = None
    past_due: int | None = None
    suspend: int | None = None
    announce: int | None = None
    write_off: int | None = None


def policy_of(due_on: date, *versions: Iterable[Terms]) -> Policy:
    """What holds for an invoice that was due on that day: of each kind of versions, the general one first, the newest.

    A version holds for what is due from its first day on, so that no change moves what has begun.
    """
    policy = DEFAULTS
    for kind in versions:
        started = [terms for terms in kind if terms.since <= due_on]
        if started:
            newest = max(started, key=lambda terms: terms.since)
            values = {column.name: getattr(newest, column.name) for column in fields(Policy)}
            policy = replace(policy, **{name: value for name, value in values.items() if value is not None})
    return policy


def problem(policy: Policy) -> str:
    """Why a policy cannot be meant, in a sentence; '' where it can."""
    if list(policy.reminders) != sorted(set(policy.reminders)) or any(day < 1 for day in policy.reminders):
        return "reminders are days after due, each later than the one before: [3, 10, 21]."
    if any(day < 1 for day in policy.retries):
        return "retries are days to the next try, at least 1 each: [3, 5, 7]."
    if policy.past_due < 1:
        return "past_due is at least 1: on the day on which it is due an invoice is not late."
    if policy.announces and not policy.emails:
        return "e-mails are off, so that nobody is told of a suspension: set announce to 0 if that is meant."
    if policy.suspends and policy.announce >= policy.suspend:
        return (
            f"announce is {policy.announce} days before a suspension on day {policy.suspend}: make it fewer."
        )
    if policy.suspends and policy.suspend < policy.past_due:
        return f"suspend is day {policy.suspend}, before the invoice is past due on day {policy.past_due}."
    return ""


@dataclass(frozen=True, slots=True, order=True)
class Mark:
    """One step of a timeline."""

    day: date
    step: Step
    number: int = 0  # which reminder


def timeline(policy: Policy, *, due_on: date) -> list[Mark]:
    """All that will follow while the invoice is not paid, in order.

    Who crosses into past due on the day after due hears of it by the first reminder, without a notice of its own.
    """
    marks = []
    if policy.past_due > 1:
        marks.append((policy.past_due, Step.PAST_DUE, 0))
    marks += [(days, Step.REMINDER, number) for number, days in enumerate(policy.reminders, 1)]
    if policy.announces:
        marks.append((policy.suspend - policy.announce, Step.ANNOUNCE, 0))
    if policy.suspends:
        marks.append((policy.suspend, Step.SUSPEND, 0))
    if policy.write_off:
        marks.append((policy.write_off, Step.WRITE_OFF, 0))
    order = list(Step)
    marks.sort(key=lambda mark: (mark[0], order.index(mark[1]), mark[2]))
    return [Mark(due_on + timedelta(days=days), step, number) for days, step, number in marks]


def past_due_from(policy: Policy, *, due_on: date) -> date:
    """The first day on which an invoice counts as past due."""
    return due_on + timedelta(days=policy.past_due)


def suspended_from(policy: Policy, *, due_on: date, announced_on: date | None) -> date | None:
    """The day on which the tenant is suspended; None: never, or not before that was announced to it.

    What is announced late is done late: the tenant always has the days that the policy gives it.
    """
    if not policy.suspends:
        return None
    planned = due_on + timedelta(days=policy.suspend)
    if not policy.announces:
        return planned
    return None if announced_on is None else max(planned, announced_on + timedelta(days=policy.announce))


def still_holds(policy: Policy, *, announced_on: date, ended_on: date | None, today: date) -> bool:
    """Whether an announcement can still be followed, rather than come out of the blue after months of rest.

    It holds for a while from the day that it named, or from the last day on which the tenant was suspended.
    """
    named = announced_on + timedelta(days=policy.announce)
    return today <= max(named, ended_on or named) + HOLDS


def times_reopened(left: int, amounts: Sequence[int]) -> int:
    """How often something was left again after nothing was: by what is left now, and what was taken off in order."""
    stands = accumulate(amounts, sub, initial=left + sum(amounts))
    return sum(before <= 0 < after for before, after in pairwise(stands))


def in_order(payments: Iterable[tuple[date, int]], notes: Iterable[tuple[date, int]]) -> list[int]:
    """What payments, in the order of their booking, and credit notes took off, one after the other.

    Each with its day. A note stands before the first payment of a later day: what it takes off was owed until then.
    """
    waiting = deque(sorted(notes))
    amounts: list[int] = []
    for day, amount in payments:
        while waiting and waiting[0][0] < day:
            amounts.append(waiting.popleft()[1])
        amounts.append(amount)
    return [*amounts, *(amount for _, amount in waiting)]


def morning(day: date, zone: ZoneInfo) -> datetime:
    """When e-mails of that day go out: a little after it begins, so that all that the day brings is one."""
    return datetime.combine(day, time.min, zone) + MORNING + LATER


def day_of(moment: datetime, zone: ZoneInfo) -> date:
    """The day of dunning that it is there: until eight in the morning, still the one before."""
    return (moment.astimezone(zone).replace(tzinfo=None) - MORNING).date()
