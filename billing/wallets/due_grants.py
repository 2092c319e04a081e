"""What the rules of a scheme give to a wallet, and at which instants."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta

from billing.models.wallets import Accrual, GrantKind, GrantRule, Wallet, WalletGrant
from billing.rules.period import midnight
from billing.rules.wallet import Every, due

_SECOND = timedelta(seconds=1)


def accrued_through(wallet: Wallet) -> dict[int, datetime]:
    """By rule the last instant at which it was due and was looked at."""
    return dict(Accrual.objects.filter(wallet=wallet).values_list("rule", "through"))


def fresh(
    wallet: Wallet, through: Mapping[int, datetime], *, moment: datetime
) -> list[tuple[datetime, GrantRule]]:
    """What rules have made due since `through`, up to `moment`, in order."""
    instants = [
        (at, rule)
        for rule in GrantRule.objects.filter(scheme=wallet.scheme_id)
        for at in _instants(wallet, rule, after=through.get(rule.pk), until=moment)
    ]
    return sorted(instants, key=lambda pair: (pair[0], pair[1].name))


def hours_again(
    wallet: Wallet, *, since: date, capped: Iterable[GrantRule], keys: set[str]
) -> Iterator[WalletGrant]:
    """What rules with a cap were asked for by the hour from `since` on, but for the `keys`.

    An hour at which a full wallet was given nothing has no row; less, or more, may have been used before it.
    """
    hourly = [rule for rule in capped if rule.every == Every.HOUR]
    if not hourly:
        return
    through = accrued_through(wallet)
    before = None if since == date.min else midnight(since, zone=wallet.tenant.zone) - _SECOND
    for rule in hourly:
        if rule.pk in through:
            for at in _instants(wallet, rule, after=before, until=through[rule.pk]):
                row = grant_by(rule, wallet, at)
                if row.key not in keys:
                    yield row


def grant_by(rule: GrantRule, wallet: Wallet, at: datetime) -> WalletGrant:
    """The rule's grant of that instant, not saved: all of it, whatever its cap."""
    first = at.astimezone(wallet.tenant.zone).date()
    return WalletGrant(
        wallet=wallet,
        tenant_id=wallet.tenant_id,
        kind=GrantKind.RULE,
        rule=rule,
        key=f"{rule.name} {at.astimezone(UTC):%Y-%m-%dT%H:%MZ}",
        amount=rule.amount,
        left=0,
        priority=rule.priority,
        usable_from=first,
        expires_on=first + timedelta(days=rule.lasts_days) if rule.lasts_days else None,
        granted_at=at,
        granted_by="scheme",
        reason=rule.name,
    )


def _instants(
    wallet: Wallet, rule: GrantRule, *, after: datetime | None, until: datetime
) -> Iterator[datetime]:
    for at in due(
        Every(rule.every),
        opened=max(wallet.opened_at, rule.begins_at).astimezone(UTC),
        after=after,
        until=until,
        zone=wallet.tenant.zone,
        anchor_day=wallet.tenant.anchor_day,
    ):
        if rule.ends_at is not None and at >= rule.ends_at:
            return
        yield at
