"""Bringing a wallet to what its grants, its use and the time make of it, whatever was booked before and when.

Days are computed again from the first one that something touches, in their order, and what differs from the entries
is added to them. So what becomes known late, or again, is paid as if it had been known at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime

from django.db import transaction

from billing.models.wallets import Accrual, EntrySide, GrantRule, Wallet, WalletDay, WalletGrant
from billing.rules.wallet import Every, Piece
from billing.rules.wallet_course import Balance, Course, Due, gone_on, run
from billing.wallets import caps, dues
from billing.wallets.books import Books, read
from billing.wallets.entries import Booking, grant_of, post


@dataclass(frozen=True, slots=True)
class Change:
    """What is new: use by day, in full, and bookings beside, which touch no day and no grant before `since`."""

    use: Mapping[date, int] = field(default_factory=dict)
    beside: Sequence[Booking] = ()
    since: date | None = None
    expires: bool = True  # whether time passes for what expires


@dataclass(slots=True)
class _Outcome:
    """The books, the grants that join them by negative keys, and what the wallet's course makes of both."""

    wallet: Wallet
    books: Books
    change: Change
    moment: datetime | None  # None: nothing expires that has not, as for a proof
    made: dict[int, WalletGrant]
    course: Course = field(default_factory=Course)

    @property
    def rows(self) -> dict[int, WalletGrant]:
        return self.books.rows | self.made

    def given(self, row: WalletGrant) -> int:
        return self.course.given.get((row.granted_at, row.key), row.amount)

    def expired(self, key: int, row: WalletGrant) -> int:
        return self.course.left.get(key, 0) if self.is_gone(row) else 0

    def is_gone(self, row: WalletGrant) -> bool:
        """Whether what is left of it is out of the balance."""
        if self.moment is None:
            return row.expired_at is not None
        if row.expires_on is not None and row.expires_on > self.books.waits_from:
            return False
        today = self.moment.astimezone(self.wallet.tenant.zone).date()
        return row.expired_at is not None or (self.change.expires and gone_on(row.expires_on) <= today)


def settle(*, wallet: Wallet, moment: datetime, change: Change | None = None) -> None:
    """Give what is due, take what was used, and let expire what has to, up to `moment`. Asked again: nothing.

    For a caller that holds the wallet's row.
    """
    change, zone = change or Change(), wallet.tenant.zone
    fresh = dues.fresh(wallet, moment=moment)
    days = [*change.use, *(at.astimezone(zone).date() for at, _ in fresh)]
    days += [change.since] if change.since is not None else []
    since = min(days, default=moment.astimezone(zone).date())
    outcome = _outcome(wallet, since, fresh, change, moment)
    with transaction.atomic():
        _write(outcome, moment)
        WalletDay.objects.bulk_create(
            [WalletDay(wallet=wallet, day=day, booked=amount) for day, amount in change.use.items()],
            update_conflicts=True,
            unique_fields=["wallet", "day"],
            update_fields=["booked"],
        )
        for key, (rule, at) in {rule.pk: (rule, at) for at, rule in fresh}.items():
            Accrual.objects.update_or_create(
                wallet=wallet, rule_id=key, defaults={"rule": rule, "through": at}
            )


def differences(wallet: Wallet) -> list[str]:
    """Where the entries are not what the whole course of the wallet makes of its days and grants; for the proof."""
    found = _outcome(wallet, date.min, [], Change(), None)
    return [booking.memo for booking in _bookings(found, found.rows)]


def _outcome(
    wallet: Wallet,
    since: date,
    fresh: Sequence[tuple[datetime, GrantRule]],
    change: Change,
    moment: datetime | None,
) -> _Outcome:
    capped = {rule.pk: rule for rule in GrantRule.objects.filter(scheme=wallet.scheme_id, cap__isnull=False)}
    books = read(wallet, since=since, beside=change.beside)
    made = [dues.grant_by(rule, wallet, at) for at, rule in fresh]
    keys = {row.key for row in [*made, *books.rows.values()]}
    made += dues.hours_again(wallet, since=since, capped=capped.values(), keys=keys)
    found = _Outcome(wallet, books, change, moment, {-place: row for place, row in enumerate(made, start=1)})
    _run(found, capped)
    for key, row in list(found.made.items()):
        row.amount = found.given(row)
        if not row.amount and row.rule is not None and row.rule.every == Every.HOUR:
            del found.made[key]  # such hours are found again without a row
    return found


def _run(found: _Outcome, capped: Mapping[int, GrantRule]) -> None:
    books, since = found.books, found.books.since
    pools = books.pools | {key: row.amount for key, row in found.made.items()}
    grants = {key: grant_of(row, pools[key], key) for key, row in found.rows.items()}
    found.course.open([grant for grant in grants.values() if grant.usable_from < since], books.debts())
    later = {key: grant for key, grant in grants.items() if grant.usable_from >= since}
    asked = {
        key: Due(replace(grant, left=rule.amount), rule.cap, drawn=found.rows[key].amount - grant.left)
        for key, grant in later.items()
        if (rule := capped.get(found.rows[key].rule_id or 0)) is not None and rule.cap is not None
    }
    gone: dict[date, list[int]] = defaultdict(list)
    for key, row in found.rows.items():
        if found.is_gone(row):
            gone[gone_on(row.expires_on)].append(key)
    run(
        found.course,
        use=books.booked | dict(found.change.use),
        taken={day: amount - books.booked.get(day, 0) for day, amount in books.taken().items()},
        grants=[grant for key, grant in later.items() if key not in asked],
        dues=asked.values(),
        balance=_balance(found, asked, gone) if asked else None,
        gone={day: keys for day, keys in gone.items() if day > since},
    )


def _balance(found: _Outcome, asked: Mapping[int, Due], gone: Mapping[date, Sequence[int]]) -> Balance:
    """What caps look at. The first balance is today's, without what came since and with what went since."""
    books, since = found.books, found.books.since
    given = caps.given_each(found.wallet, since)
    used = sum(books.taken().values()) + sum(
        piece.amount for each in found.change.beside if each.day for piece in each.pieces
    )
    back = sum(row.expired for row in books.rows.values() if gone_on(row.expires_on) > since)
    over = sum(books.rows[key].left for day, keys in gone.items() if day <= since for key in keys)
    fresh = {key: row.amount for key, row in found.made.items()}
    return caps.balance(
        found.wallet,
        since=since,
        days={due.grant.usable_from for due in asked.values()},
        before=found.wallet.balance - sum(given.values()) + used + back - over,
        given=[
            (row.granted_at, (given | fresh).get(key, 0))
            for key, row in found.rows.items()
            if row.usable_from >= since and key not in asked
        ],
        beside=found.change.beside,
        granted_at={row.pk: row.granted_at for row in books.rows.values()},
    )


def _write(found: _Outcome, moment: datetime) -> None:
    """The grants that are new, the entries that differ, and what is left of each grant."""
    made = WalletGrant.objects.bulk_create(found.made.values())
    numbers = dict(zip(found.made, (row.pk for row in made), strict=True))
    bookings = list(_bookings(found, found.rows))
    changed: dict[int, WalletGrant] = {numbers.get(key, key): row for key, row in found.made.items()}
    for key, row in found.rows.items():
        given, expired = found.given(row), found.expired(key, row)
        expires = found.is_gone(row)
        if (given, expired) != (row.amount, row.expired) or (row.expired_at is not None and not expires):
            row.amount, row.expired = given, expired
            row.expired_at = (row.expired_at or moment) if expires else None
            changed[numbers.get(key, key)] = row
    post(
        found.wallet, *found.change.beside, *(_numbered(each, numbers) for each in bookings), changed=changed
    )


def _bookings(found: _Outcome, rows: Mapping[int, WalletGrant]) -> Iterator[Booking]:
    """What differs from the entries: what was given, what days were paid by, and what expired."""
    for key, row in rows.items():
        new = key in found.made
        more = found.given(row) - (0 if new else row.amount)
        if more or new:
            memo = row.why or row.key
            at = row.granted_at if new else found.moment or row.granted_at
            memo = memo if new else f"{memo}, counted again"
            yield Booking([Piece(key, more)], EntrySide.GRANTED, at, memo=memo, grant=key)
    yield from _days(found)
    for key, row in rows.items():
        more = found.expired(key, row) - row.expired
        if more:
            memo = f"{row.why or row.key} " + ("expired" if more > 0 else "was used before it expired")
            at = found.moment or row.granted_at
            yield Booking([Piece(key, -more)], EntrySide.EXPIRED, at, memo=memo, grant=key)


def _days(found: _Outcome) -> Iterator[Booking]:
    """By day what was used more or less, and what other grants pay now."""
    wanted: dict[date, dict[int | None, int]] = defaultdict(lambda: defaultdict(int))
    for (day, grant), amount in found.books.dayed.items():
        wanted[day][grant] -= amount
    for (day, key), amount in found.course.paid.items():
        wanted[day][key] -= amount
    for day, amount in found.course.debts.items():
        wanted[day][None] -= amount
    use, booked = found.change.use, found.books.booked
    for day, by_grant in sorted(wanted.items()):
        pieces = [Piece(grant, amount) for grant, amount in by_grant.items() if amount]
        more = use.get(day, booked.get(day, 0)) - booked.get(day, 0)
        memo = (
            f"Less use of {day}" if more < 0 else f"Use of {day}" if more else f"Use of {day}, paid otherwise"
        )
        if pieces:
            at = found.moment or found.wallet.opened_at
            yield Booking(pieces, EntrySide.USED if more else None, at, memo=memo, day=day)


def _numbered(booking: Booking, numbers: Mapping[int, int]) -> Booking:
    """With the numbers that its new grants have now."""
    pieces = [
        piece if piece.grant is None else replace(piece, grant=numbers.get(piece.grant, piece.grant))
        for piece in booking.pieces
    ]
    grant = None if booking.grant is None else numbers.get(booking.grant, booking.grant)
    return replace(booking, pieces=pieces, grant=grant)
