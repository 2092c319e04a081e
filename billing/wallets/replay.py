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
from billing.rules.wallet_course import Balance, Course, Due, run
from billing.wallets import caps, due_grants
from billing.wallets.entries import Booking, grant_of, post
from billing.wallets.wallet_ledger import Ledger, read_ledger, waits_from_of


@dataclass(frozen=True, slots=True)
class Change:
    """What is new: use by day, in full, and bookings, which touch no day and no grant before `since`."""

    use: Mapping[date, int] = field(default_factory=dict)
    bookings: Sequence[Booking] = ()
    since: date | None = None


@dataclass(slots=True)
class _Outcome:
    """The ledger, the grants that join them by negative keys, and what the wallet's course makes of both."""

    wallet: Wallet
    ledger: Ledger
    change: Change
    moment: datetime | None  # None: nothing expires that has not, as for a proof
    fresh_rows: dict[int, WalletGrant]
    course: Course = field(default_factory=Course)

    @property
    def rows(self) -> dict[int, WalletGrant]:
        return self.ledger.rows | self.fresh_rows

    def granted(self, row: WalletGrant) -> int:
        return self.course.granted.get((row.granted_at, row.key), row.amount)

    def expired(self, key: int, row: WalletGrant) -> int:
        return 0 if self.gone_on(row) is None else self.course.left.get(key, 0)

    def gone_on(self, row: WalletGrant) -> date | None:
        """The day with which what is left of it went out of the balance; None while it is there."""
        if self.moment is None or row.expires_on is None:
            return row.gone_on
        if row.expires_on > self.ledger.waits_from:
            return None
        on = row.gone_on or self.ledger.goes_on(row.expires_on)
        return on if on <= self.moment.astimezone(self.wallet.tenant.zone).date() else None


def settle(*, wallet: Wallet, moment: datetime, change: Change | None = None) -> None:
    """Give what is due, take what was used, and let expire what has to, up to `moment`. Asked again: nothing.

    What happened before the last grant of a rule, and becomes known after it, is settled as of that grant: the caps of
    the days between look at a balance without what expired by then. For a caller that holds the wallet's row.
    """
    change, zone = change or Change(), wallet.tenant.zone
    through = due_grants.accrued_through(wallet)
    moment = max([moment, *through.values()])
    fresh = due_grants.fresh(wallet, through, moment=moment)
    days = [*change.use, *(at.astimezone(zone).date() for at, _ in fresh)]
    days += [change.since] if change.since is not None else []
    # What waits for an invoice again, as one became void, is back from the day on which it went.
    back = WalletGrant.objects.filter(
        wallet=wallet, gone_on__isnull=False, expires_on__gt=waits_from_of(wallet)
    )
    days += [on for on in back.values_list("gone_on", flat=True) if on is not None]
    since = min(days, default=moment.astimezone(zone).date())
    outcome = _outcome(wallet, since, fresh, change, moment)
    with transaction.atomic():
        _write(outcome)
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
    outcome = _outcome(wallet, date.min, [], Change(), None)
    return [booking.memo for booking in _bookings(outcome, outcome.rows)]


def _outcome(
    wallet: Wallet,
    since: date,
    fresh: Sequence[tuple[datetime, GrantRule]],
    change: Change,
    moment: datetime | None,
) -> _Outcome:
    capped = {rule.pk: rule for rule in GrantRule.objects.filter(scheme=wallet.scheme_id, cap__isnull=False)}
    ledger = read_ledger(wallet, since=since, bookings=change.bookings)
    fresh_rows = [due_grants.grant_by(rule, wallet, at) for at, rule in fresh]
    keys = {row.key for row in [*fresh_rows, *ledger.rows.values()]}
    fresh_rows += due_grants.hours_again(wallet, since=since, capped=capped.values(), keys=keys)
    outcome = _Outcome(
        wallet, ledger, change, moment, {-place: row for place, row in enumerate(fresh_rows, start=1)}
    )
    _run(outcome, capped)
    for key, row in list(outcome.fresh_rows.items()):
        row.amount = outcome.granted(row)
        if not row.amount and row.rule is not None and row.rule.every == Every.HOUR:
            del outcome.fresh_rows[key]  # such hours are found again without a row
    return outcome


def _run(outcome: _Outcome, capped: Mapping[int, GrantRule]) -> None:
    ledger, since = outcome.ledger, outcome.ledger.since
    pools = ledger.pools | {key: row.amount for key, row in outcome.fresh_rows.items()}
    grants = {key: grant_of(row, pools[key], key) for key, row in outcome.rows.items()}
    outcome.course.open([grant for grant in grants.values() if grant.usable_from < since], ledger.debts())
    later = {key: grant for key, grant in grants.items() if grant.usable_from >= since}
    capped_dues = {
        key: Due(replace(grant, left=rule.amount), rule.cap, drawn=outcome.rows[key].amount - grant.left)
        for key, grant in later.items()
        if (rule := capped.get(outcome.rows[key].rule_id or 0)) is not None and rule.cap is not None
    }
    gone: dict[date, list[int]] = defaultdict(list)
    for key, row in outcome.rows.items():
        if (on := outcome.gone_on(row)) is not None:
            gone[on].append(key)
    run(
        outcome.course,
        use=ledger.booked | dict(outcome.change.use),
        withdrawn={day: amount - ledger.booked.get(day, 0) for day, amount in ledger.drawn().items()},
        grants=[grant for key, grant in later.items() if key not in capped_dues],
        dues=capped_dues.values(),
        balance=_balance(outcome, capped_dues, gone) if capped_dues else None,
        gone={day: keys for day, keys in gone.items() if day > since},
    )


def _balance(
    outcome: _Outcome, capped_dues: Mapping[int, Due], gone: Mapping[date, Sequence[int]]
) -> Balance:
    """What caps look at. The first balance is today's, without what came since and with what went since."""
    ledger, since = outcome.ledger, outcome.ledger.since
    granted = caps.granted_amounts(outcome.wallet, since)
    used = sum(ledger.drawn().values()) + sum(
        piece.amount for booking in outcome.change.bookings if booking.day for piece in booking.pieces
    )
    back = sum(row.expired for row in ledger.rows.values() if row.gone_on is not None and row.gone_on > since)
    over = sum(ledger.rows[key].left for day, keys in gone.items() if day <= since for key in keys)
    fresh = {key: row.amount for key, row in outcome.fresh_rows.items()}
    return caps.balance(
        outcome.wallet,
        since=since,
        days={due.grant.usable_from for due in capped_dues.values()},
        before=outcome.wallet.balance - sum(granted.values()) + used + back - over,
        grants=[
            (row.granted_at, (granted | fresh).get(key, 0))
            for key, row in outcome.rows.items()
            if row.usable_from >= since and key not in capped_dues
        ],
        bookings=outcome.change.bookings,
        granted_at={row.pk: row.granted_at for row in ledger.rows.values()},
    )


def _write(outcome: _Outcome) -> None:
    """The grants that are new, the entries that differ, and what is left of each grant."""
    fresh_rows = WalletGrant.objects.bulk_create(outcome.fresh_rows.values())
    numbers = dict(zip(outcome.fresh_rows, (row.pk for row in fresh_rows), strict=True))
    bookings = list(_bookings(outcome, outcome.rows))
    changed: dict[int, WalletGrant] = {numbers.get(key, key): row for key, row in outcome.fresh_rows.items()}
    for key, row in outcome.rows.items():
        granted, expired = outcome.granted(row), outcome.expired(key, row)
        on = outcome.gone_on(row) if expired or row.gone_on is not None else None
        if (granted, expired, on) != (row.amount, row.expired, row.gone_on):
            row.amount, row.expired, row.gone_on = granted, expired, on
            changed[numbers.get(key, key)] = row
    post(
        outcome.wallet,
        *outcome.change.bookings,
        *(_numbered(booking, numbers) for booking in bookings),
        changed=changed,
    )


def _bookings(outcome: _Outcome, rows: Mapping[int, WalletGrant]) -> Iterator[Booking]:
    """What differs from the entries: what was given, what days were paid by, and what expired."""
    for key, row in rows.items():
        new = key in outcome.fresh_rows
        more = outcome.granted(row) - (0 if new else row.amount)
        if more or new:
            memo = row.reason or row.key
            at = row.granted_at if new else outcome.moment or row.granted_at
            memo = memo if new else f"{memo}, counted again"
            yield Booking([Piece(key, more)], EntrySide.GRANTED, at, memo=memo, grant=key)
    yield from _days(outcome)
    for key, row in rows.items():
        more = outcome.expired(key, row) - row.expired
        if more:
            memo = f"{row.reason or row.key} " + ("expired" if more > 0 else "was used before it expired")
            at = outcome.moment or row.granted_at
            yield Booking([Piece(key, -more)], EntrySide.EXPIRED, at, memo=memo, grant=key)


def _days(outcome: _Outcome) -> Iterator[Booking]:
    """By day what was used more or less, and what other grants pay now."""
    amounts: dict[date, dict[int | None, int]] = defaultdict(lambda: defaultdict(int))
    for (day, grant), amount in outcome.ledger.dayed.items():
        amounts[day][grant] -= amount
    for (day, key), amount in outcome.course.paid.items():
        amounts[day][key] -= amount
    for day, amount in outcome.course.debts.items():
        amounts[day][None] -= amount
    use, booked = outcome.change.use, outcome.ledger.booked
    for day, by_grant in sorted(amounts.items()):
        pieces = [Piece(grant, amount) for grant, amount in by_grant.items() if amount]
        more = use.get(day, booked.get(day, 0)) - booked.get(day, 0)
        memo = (
            f"Less use of {day}" if more < 0 else f"Use of {day}" if more else f"Use of {day}, paid otherwise"
        )
        if pieces:
            at = outcome.moment or outcome.wallet.opened_at
            yield Booking(pieces, EntrySide.USED if more else None, at, memo=memo, day=day)


def _numbered(booking: Booking, numbers: Mapping[int, int]) -> Booking:
    """With the numbers that its new grants have now."""
    pieces = [
        piece if piece.grant is None else replace(piece, grant=numbers.get(piece.grant, piece.grant))
        for piece in booking.pieces
    ]
    grant = None if booking.grant is None else numbers.get(booking.grant, booking.grant)
    return replace(booking, pieces=pieces, grant=grant)
