"""Wallets with what was given, set aside and booked on them, and the statement of a month."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from django.http import HttpResponse
from rest_framework import serializers

from billing.models import EntrySide, Wallet, WalletEntry, WalletGrant, WalletHold
from billing.queries import wallets as queries
from billing.queries.wallets import Booked
from billing.rules.money import Money
from billing.rules.period import period_starting_in
from portal.api import expansion, identifiers, parameters
from portal.api.answers import as_json
from portal.api.expansion import Expansion, by_owner
from portal.api.fields import IdField, MomentField, MoneyField, minor
from portal.api.problems import not_found
from portal.api.resources.exports import PERIOD
from portal.api.views import TenantEndpoint

ROWS = 500  # bookings of a statement
GIVEN_FIRST = ("priority", "expires_on", "usable_from", "pk")


class WalletSerializer(serializers.ModelSerializer[Wallet]):
    """A prepaid balance: of a tenant, a project or a user."""

    id = IdField("wal")
    tenant = serializers.CharField(source="tenant.slug")
    project = serializers.CharField(source="project.name", default=None, allow_null=True)
    user = serializers.CharField(help_text="Empty: it is not one user's.")
    unit = serializers.CharField(help_text="A currency, or TOK for tokens.")
    balance = serializers.SerializerMethodField(help_text="What may be spent, and what is on hold.")
    on_hold = serializers.SerializerMethodField(help_text="Set aside for admitted work.")
    opened_at = MomentField()

    class Meta:
        model = Wallet
        fields = ("id", "tenant", "project", "user", "unit", "balance", "on_hold", "opened_at")

    def get_balance(self, wallet: Wallet) -> dict[str, str]:
        return minor(wallet.balance, wallet.unit)

    def get_on_hold(self, wallet: Wallet) -> dict[str, str]:
        return minor(wallet.held, wallet.unit)


class WalletEntrySerializer(serializers.ModelSerializer[WalletEntry]):
    """One movement of a wallet: the entries of a booking add up to what its balance moved by."""

    id = IdField("ent")
    amount = serializers.SerializerMethodField(help_text="Signed.")
    at = MomentField()
    booking = serializers.CharField(help_text="The same for all entries that were booked together.")

    class Meta:
        model = WalletEntry
        fields = ("id", "booking", "side", "amount", "day", "at", "memo")

    def get_amount(self, entry: WalletEntry) -> dict[str, str]:
        return minor(entry.amount, self.context["unit"])


class GrantSerializer(serializers.ModelSerializer[WalletGrant]):
    """Credit that was given, and what is left of it."""

    id = IdField("grant")
    amount = serializers.SerializerMethodField()
    left = serializers.SerializerMethodField()
    expired = serializers.SerializerMethodField(help_text="What was left when it expired.")
    priority = serializers.IntegerField(help_text="The smallest pays first.")
    expires_on = serializers.DateField(allow_null=True, help_text="The first day that it does not pay for.")
    granted_at = MomentField()
    reason = serializers.CharField()

    class Meta:
        model = WalletGrant
        fields = (
            *("id", "kind", "amount", "left", "expired", "priority", "usable_from", "expires_on"),
            *("granted_at", "reason"),
        )

    def get_amount(self, grant: WalletGrant) -> dict[str, str]:
        return minor(grant.amount, grant.wallet.unit)

    def get_left(self, grant: WalletGrant) -> dict[str, str]:
        return minor(grant.left, grant.wallet.unit)

    def get_expired(self, grant: WalletGrant) -> dict[str, str]:
        return minor(grant.expired, grant.wallet.unit)


class HoldSerializer(serializers.ModelSerializer[WalletHold]):
    """Credit set aside for work that is admitted, until it is released."""

    id = IdField("hold")
    key = serializers.CharField(help_text="What it is held for.")
    amount = serializers.SerializerMethodField()
    placed_at = MomentField()
    released_at = MomentField(allow_null=True)

    class Meta:
        model = WalletHold
        fields = ("id", "key", "amount", "placed_at", "released_at")

    def get_amount(self, hold: WalletHold) -> dict[str, str]:
        return minor(hold.amount, hold.wallet.unit)


def _grants(view: Any, wallets: Sequence[Any]) -> Mapping[Any, Sequence[Any]]:
    """With something left, in the order in which they pay."""
    del view
    rows = WalletGrant.objects.filter(wallet__in=wallets, left__gt=0).order_by("wallet", *GIVEN_FIRST)
    return by_owner(rows[: expansion.MOST + 1], wallets, "wallet")


def _holds(view: Any, wallets: Sequence[Any]) -> Mapping[Any, Sequence[Any]]:
    """Those that are not released."""
    del view
    rows = WalletHold.objects.filter(wallet__in=wallets, released_at=None).order_by("wallet", "pk")
    return by_owner(rows[: expansion.MOST + 1], wallets, "wallet")


EXPANSIONS: Mapping[str, Expansion] = {
    "grants": Expansion(GrantSerializer, _grants),
    "holds": Expansion(HoldSerializer, _holds),
}


class WalletEndpoint(TenantEndpoint):
    scope = "wallets:read"

    def wallets(self) -> Any:
        rows = self.of_tenant(Wallet.objects.select_related("tenant", "project"))
        project = self.client.key.project_id
        return rows.filter(project=project) if project is not None else rows

    def wallet(self, name: str) -> Wallet:
        """Raises ProblemError 404."""
        wallet: Wallet | None = self.wallets().filter(pk=identifiers.read("wal", name)).first()
        if wallet is None:
            raise not_found()
        return wallet


class Wallets(WalletEndpoint):
    """The wallets, in the order of their opening."""

    serializer = WalletSerializer
    lists = True
    expansions = EXPANSIONS
    parameters = (parameters.TENANT, expansion.parameter(EXPANSIONS), *parameters.LISTS)

    def get(self, request: Any) -> HttpResponse:
        del request
        return self.page(self.wallets(), order=("pk",))


class OneWallet(WalletEndpoint):
    """One wallet."""

    serializer = WalletSerializer
    expansions = EXPANSIONS
    parameters = (parameters.TENANT, expansion.parameter(EXPANSIONS))

    def get(self, request: Any, name: str) -> HttpResponse:
        del request
        return self.one(self.wallet(name))


class Holds(WalletEndpoint):
    """What was set aside on a wallet, the newest first; `standing=true`: what still is."""

    serializer = HoldSerializer
    lists = True
    parameters = (
        parameters.TENANT,
        parameters.flag("standing", "Only those that are not released."),
        *parameters.LISTS,
    )

    def get(self, request: Any, name: str) -> HttpResponse:
        del request
        wallet = self.wallet(name)
        rows = wallet.holds.filter(released_at=None) if self.query["standing"] else wallet.holds.all()
        return self.page(rows, order=("-pk",))


class WalletEntries(WalletEndpoint):
    """What was booked on a wallet, the newest first."""

    serializer = WalletEntrySerializer
    lists = True
    parameters = (parameters.TENANT, *parameters.LISTS)

    def get(self, request: Any, name: str) -> HttpResponse:
        del request
        wallet = self.wallet(name)
        rows = WalletEntry.objects.filter(wallet=wallet, side=EntrySide.BALANCE)
        return self.page(rows, order=("-pk",), unit=wallet.unit)


class MovementSerializer(serializers.Serializer[Any]):
    """What came from, or went to, one side in the month."""

    side = serializers.ChoiceField(choices=[one.value for one in EntrySide if one != EntrySide.BALANCE])
    amount = MoneyField(help_text="Signed as the balance saw it.")


class BookingSerializer(serializers.Serializer[Any]):
    """One booking, and the balance after it."""

    at = MomentField()
    day = serializers.DateField(allow_null=True, help_text="Of service.")
    memo = serializers.CharField()
    amount = MoneyField(help_text="Signed.")
    balance = MoneyField()


class StatementPeriodSerializer(serializers.Serializer[Any]):
    """A calendar month of the tenant's zone, half-open."""

    timezone = serializers.CharField()

    def get_fields(self) -> dict[str, Any]:
        return {"from": MomentField(source="start"), "to": MomentField(source="end")} | super().get_fields()


class StatementSerializer(serializers.Serializer[Any]):
    """opening + Σ movements = closing."""

    period = StatementPeriodSerializer()
    opening = MoneyField()
    movements = MovementSerializer(many=True)
    closing = MoneyField()
    bookings = BookingSerializer(many=True, help_text="The first 500, in order; `entries` has all.")
    count = serializers.IntegerField(help_text="Of all bookings of the month.")


class WalletStatement(WalletEndpoint):
    """The statement of a wallet for a month: opening balance, what was booked, closing balance."""

    serializer = StatementSerializer
    parameters = (
        parameters.TENANT,
        replace(PERIOD, description="A month of the tenant's zone, by when it was booked."),
    )

    def get(self, request: Any, name: str) -> HttpResponse:
        del request
        wallet = self.wallet(name)
        tenant, unit = wallet.tenant, wallet.unit
        month = period_starting_in(*self.query["period"], zone=tenant.zone, anchor_day=1)
        statement = queries.of_month(tenant, wallet.pk, since=month.start, until=month.end, limit=ROWS)
        if statement is None:
            raise not_found()
        answer = {
            "period": {"start": month.start, "end": month.end, "timezone": tenant.timezone},
            "opening": Money.from_minor(statement.opening, unit),
            "movements": [
                {"side": side.value, "amount": Money.from_minor(amount, unit)}
                for side, amount in sorted(statement.sums.items())
                if amount
            ],
            "closing": Money.from_minor(statement.closing, unit),
            "bookings": [_booking(row, unit) for row in statement.rows],
            "count": statement.count,
        }
        return as_json(StatementSerializer(answer).data)


def _booking(row: Booked, unit: str) -> dict[str, Any]:
    amounts = {name: Money.from_minor(getattr(row, name), unit) for name in ("amount", "balance")}
    return {"at": row.at, "day": row.day, "memo": row.memo, **amounts}
