"""Giving credit: by hand, by a scheme's rules as they come due, and what expires of it."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

from django.db import connection, transaction

from billing.models import BillingPeriod
from billing.models.wallets import (
    PAYS_FIRST,
    Accrual,
    EntrySide,
    GrantKind,
    GrantRule,
    Wallet,
    WalletGrant,
)
from billing.rules import wallet as rules
from billing.rules.money import LARGEST
from billing.rules.period import midnight
from billing.rules.wallet import Every, Piece
from billing.wallets import apart
from billing.wallets.entries import Booking, WalletError, locked, pays_first, post, repay_debt

SWEEP_AFTER = timedelta(days=3)
"""How long what is left of an expired grant waits for usage of its own days that is told late."""


@transaction.atomic
def grant(
    *,
    wallet: Wallet,
    amount: int,
    key: str,
    who: str,
    moment: datetime,
    why: str = "",
    kind: GrantKind = GrantKind.GIFT,
    priority: int = PAYS_FIRST,
    expires_on: date | None = None,
) -> WalletGrant:
    """Give `amount` smallest units from today on, in the tenant's zone; the debt is paid out of it first.

    Given once per `key`: asked again with the same amount, the same grant. Raises WalletError for another
    amount under the same key, for nothing, and for what expires at once.
    """
    if amount <= 0:
        raise WalletError("A grant gives more than nothing; credit is taken back by spending it.")
    if amount > LARGEST:
        raise WalletError(f"A grant is of {LARGEST:,} smallest units at most: that is a slip of the hand.")
    row = locked([wallet.pk])[wallet.pk]
    known = WalletGrant.objects.filter(wallet=row, key=key).first()
    if known is not None:
        if known.amount != amount:
            raise WalletError(f"{key!r} was granted before with another amount: use another reference.")
        return known
    today = moment.astimezone(row.tenant.zone).date()
    if expires_on is not None and expires_on <= today:
        raise WalletError(f"A grant that expires on {expires_on} would pay for nothing any more.")
    given = _give(
        row,
        WalletGrant(
            kind=kind,
            key=key,
            amount=amount,
            priority=priority,
            usable_from=today,
            expires_on=expires_on,
            granted_at=moment,
            who=who,
            why=why,
        ),
    )
    repay_debt(row, day=today, at=moment)
    return given


@transaction.atomic
def accrue(*, wallet: Wallet, moment: datetime) -> int:
    """Give what the scheme's rules have made due up to `moment`, each once; how many grants.

    What was missed is made up in order. A capped grant looks at the balance as it is booked by then.
    """
    row = locked([wallet.pk])[wallet.pk]
    through = dict(Accrual.objects.filter(wallet=row).values_list("rule", "through"))
    waiting = sorted(
        (
            (at, rule.pk, rule)
            for rule in GrantRule.objects.filter(scheme=row.scheme_id)
            for at in rules.due(
                Every(rule.every),
                opened=max(row.opened_at, rule.begins_at).astimezone(UTC),
                after=through.get(rule.pk),
                until=moment,
                zone=row.tenant.zone,
                anchor_day=row.tenant.anchor_day,
            )
            if rule.ends_at is None or at < rule.ends_at
        ),
        key=lambda each: each[:2],
    )
    given = 0
    for at, _, rule in waiting:
        amount = rules.granted(rule.amount, cap=rule.cap, balance=row.balance)
        if amount:
            _give(row, _by_rule(rule, row, amount, at))
            repay_debt(row, day=at.astimezone(row.tenant.zone).date(), at=at)
            given += 1
    for key, (rule, at) in {rule.pk: (rule, at) for at, _, rule in waiting}.items():
        Accrual.objects.update_or_create(wallet=row, rule_id=key, defaults={"rule": rule, "through": at})
    return given


@transaction.atomic
def expire(*, wallet: Wallet, moment: datetime) -> int:
    """Take what is left of grants that expired `SWEEP_AFTER` ago or longer; how much. Asked again, nothing.

    Where the wallet pays invoices first, a grant waits for those of its own days: until the periods are closed that
    began before it expired, those before it was given included: it pays for them too.
    """
    row = locked([wallet.pk])[wallet.pk]
    last = (moment - SWEEP_AFTER).astimezone(row.tenant.zone).date()
    gone = list(WalletGrant.objects.filter(wallet=row, left__gt=0, expires_on__lte=last).order_by("pk"))
    if gone and pays_first(row.tenant_id, row.unit):
        gone = [each for each in gone if not _waits(row, each)]
    for each in gone:
        post(
            row,
            Booking([Piece(each.pk, -each.left)], EntrySide.EXPIRED, moment, memo=f"{each.key} expired"),
        )
    WalletGrant.objects.filter(pk__in=[each.pk for each in gone]).update(expired_at=moment)
    return sum(each.left for each in gone)


def tend(*, moment: datetime) -> None:
    """Accrue and expire on every wallet that has something due; each is its own transaction, so a kill loses nothing.

    One that fails holds up no other, and is due again. Raises LeftOverError at the end.
    """

    def give_and_take(wallet: Wallet) -> None:
        accrue(wallet=wallet, moment=moment)
        expire(wallet=wallet, moment=moment)

    due = _accruing(moment) | _expiring(moment)
    apart.each(Wallet.objects.filter(pk__in=due).order_by("pk").iterator(), give_and_take)


def _accruing(moment: datetime) -> set[int]:
    """The wallets that some rule gives something by now. One query, however many they are."""
    found = set()
    with connection.cursor() as cursor:
        cursor.execute(_RULES)
        for wallet, every, opened, through, ends, zone, anchor_day in cursor:
            nexts = rules.due(
                Every(every),
                opened=opened.astimezone(UTC),
                after=through,
                until=moment,
                zone=ZoneInfo(zone),
                anchor_day=anchor_day,
            )
            first = next(nexts, None)
            if first is not None and (ends is None or first < ends):
                found.add(wallet)
    return found


_RULES = """
SELECT w.id, r.every, greatest(w.opened_at, r.begins_at), a.through, r.ends_at, t.timezone, t.anchor_day
FROM billing_wallet w JOIN billing_grantrule r ON r.scheme_id = w.scheme_id JOIN tenants_tenant t ON t.id = w.tenant_id
LEFT JOIN billing_accrual a ON a.wallet_id = w.id AND a.rule_id = r.id
"""


def _expiring(moment: datetime) -> set[int]:
    """The wallets with a grant to sweep, and those of which it is told apart in their zone only."""
    last = (moment - SWEEP_AFTER).date() + timedelta(days=1)
    return set(WalletGrant.objects.filter(left__gt=0, expires_on__lte=last).values_list("wallet", flat=True))


def _waits(wallet: Wallet, grant: WalletGrant) -> bool:
    zone = wallet.tenant.zone
    open_periods = BillingPeriod.objects.filter(tenant=wallet.tenant_id, closed_at=None)
    ends = grant.expires_on or date.max
    return open_periods.filter(start__lt=midnight(ends, zone=zone)).exists()


def _by_rule(rule: GrantRule, wallet: Wallet, amount: int, at: datetime) -> WalletGrant:
    first = at.astimezone(wallet.tenant.zone).date()
    return WalletGrant(
        kind=GrantKind.RULE,
        key=f"{rule.name} {at.astimezone(UTC):%Y-%m-%dT%H:%MZ}",
        amount=amount,
        priority=rule.priority,
        usable_from=first,
        expires_on=first + timedelta(days=rule.lasts_days) if rule.lasts_days else None,
        granted_at=at,
        who="scheme",
        why=rule.name,
    )


def _give(wallet: Wallet, made: WalletGrant) -> WalletGrant:
    made.wallet, made.tenant_id, made.left = wallet, wallet.tenant_id, 0
    made.save()
    post(
        wallet,
        Booking([Piece(made.pk, made.amount)], EntrySide.GRANTED, made.granted_at, memo=made.why or made.key),
    )
    made.refresh_from_db(fields=["left"])
    return made
