"""E-mails about cards: one that expires, has expired, or was removed elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

from django.db.models import Exists, OuterRef
from django.utils.translation import gettext as _

from billing.models import BillingAccount, MethodState, Notice, NoticeKind, SavedMethod
from billing.receivables.dunning_policies import Policies
from billing.rules.period import period_starting_in

AHEAD = timedelta(days=31)
"""So long before it expires, a card is told of."""
ENDING = " ending in "
"""Between a card's name and its last digits, in records and as the gateway's are kept."""


def notify_expiring_cards(policies: Policies, *, moment: datetime) -> Iterator[Notice]:
    """Of cards that are charged by themselves and expire within a month, or have: the next charge would be refused."""
    today = moment.date()
    by_hand = BillingAccount.objects.filter(tenant=OuterRef("tenant"), automatic=False)
    rows = SavedMethod.objects.filter(
        ~Exists(by_hand), preferred=True, state=MethodState.USABLE, exp_year__isnull=False
    ).filter(exp_year__lte=(today + AHEAD).year)
    for card in rows:
        over_on = _expires_on(card)
        if over_on > today + AHEAD or not policies.of(card.tenant_id, today).emails:
            continue
        kind = NoticeKind.CARD_EXPIRED if over_on <= today else NoticeKind.CARD_EXPIRES
        name = f"{card.exp_year}-{card.exp_month}{'-soon' if over_on > today else ''}"
        yield _make_notice(card, kind, name, moment)


def _expires_on(card: SavedMethod) -> date:
    """The first day on which it is not valid any more; a day that never comes for what does not expire."""
    if card.exp_year is None:
        return date.max
    return period_starting_in(
        card.exp_year, card.exp_month or 12, zone=ZoneInfo("UTC"), anchor_day=1
    ).end.date()


def notify_removed_card(card: SavedMethod, *, moment: datetime) -> None:
    """A card was removed, and not here: where nothing else can be charged, its owner is told. Again, nothing more."""
    usable = SavedMethod.objects.filter(tenant=card.tenant_id, state=MethodState.USABLE).exists()
    by_hand = BillingAccount.objects.filter(tenant=card.tenant_id, automatic=False).exists()
    if usable or by_hand or not Policies([card.tenant_id]).of(card.tenant_id, moment.date()).emails:
        return
    Notice.objects.bulk_create(
        [_make_notice(card, NoticeKind.CARD_GONE, "gone", moment)], ignore_conflicts=True
    )


def _make_notice(card: SavedMethod, kind: NoticeKind, what: str, moment: datetime) -> Notice:
    return Notice(
        tenant_id=card.tenant_id,
        kind=kind,
        key=f"card:{card.pk}:{what}",
        details={"card": _english(card), "last_day": str(_expires_on(card) - timedelta(days=1))},
        created_at=moment,
        not_before=moment,
    )


def format_card(card: SavedMethod) -> str:
    """`Visa ending in 4242`, in the reader's language."""
    return localized_card(_english(card))


def localized_card(text: str) -> str:
    """The same, of what a record or the gateway has in English."""
    name, ending, digits = text.rpartition(ENDING)
    if not ending:
        return text
    names = {"bank account": _("bank account"), "Bank account": _("Bank account")}
    return _("{name} ending in {digits}").format(name=names.get(name, name), digits=digits)


def _english(card: SavedMethod) -> str:
    name = {"sepa_debit": "bank account"}.get(card.kind) or card.brand.title() or card.kind
    return f"{name}{ENDING}{card.last4}" if card.last4 else name
