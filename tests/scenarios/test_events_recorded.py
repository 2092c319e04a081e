"""What happens to invoices, payments, wallets and clusters is an event of its own transaction. Case 52 of the API."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest

from billing.dunning import dunning_run
from billing.invoicing import close_runs, credit_notes, voids
from billing.models import AutomaticTopUp, CloseKind, EntrySide, Invoice, WalletScope
from billing.rating import ingest as usage_ingest
from billing.rating import stale_clusters
from billing.receivables import settlement
from billing.rules.money import Money
from billing.rules.wallet import Piece
from billing.wallets import entries, grants, wallet_terms
from billing.wallets.entries import Booking
from clusters.connectors.base import Reading
from clusters.models import Cluster, Connection
from portal.core.events.models import Event
from tests.builders import a_bad_row, a_cluster, a_job, a_plan, a_tenant, at, ingest
from tests.collecting import Scenario, a_scenario
from tests.stories import close, invoice_of

pytestmark = pytest.mark.django_db

DECLINED, ASKS = "4000000000000341", "4000002760003184"


def events(*types: str) -> list[tuple[str, str]]:
    rows = Event.objects.order_by("pk")
    return list((rows.filter(type__in=types) if types else rows).values_list("type", "state"))


@pytest.fixture
def lab() -> Cluster:
    cluster = a_cluster(complete_through="2026-04-02")
    a_tenant("vision", plan=a_plan(), accounts=[(cluster, "vision")])
    ingest(cluster, a_job())
    return cluster


@pytest.fixture
def scenario() -> Iterator[Scenario]:
    with a_scenario() as scenario:
        yield scenario


def the_invoice() -> Invoice:
    return Invoice.objects.get(number="INV-2026-0001")


def test_api_052_a_voided_invoice(lab: Cluster) -> None:
    close("2026-03")
    invoice = invoice_of(Invoice.objects.get().tenant, "2026-03")
    voids.void_invoice(
        invoice=invoice, reason="wrong address", by="Op", on=at("2026-04-04").date(), moment=at("2026-04-04")
    )
    assert events() == [("invoice.issued", "issued"), ("invoice.voided", "void")]


def test_api_052_an_overdue_invoice_once_until_it_is_due_again(scenario: Scenario) -> None:
    for day in (20, 21):
        dunning_run.run_dunning(moment=at(f"2026-04-{day} 09:00"))
    assert events("invoice.overdue") == [("invoice.overdue", "past_due")]


def test_api_052_a_payment_by_card_that_pays_the_invoice(scenario: Scenario) -> None:
    scenario.save_card()
    for _ in range(2):
        scenario.collect()
    assert events() == [
        ("invoice.issued", "issued"),
        ("payment.succeeded", "succeeded"),
        ("invoice.paid", "paid"),
    ]
    assert {*Event.objects.values_list("kind", "key")} == {("inv", the_invoice().pk)}


@pytest.mark.parametrize(
    ("card", "event"),
    [
        (DECLINED, ("payment.failed", "failed")),
        (ASKS, ("payment.needs_action", "needs_action")),
    ],
)
def test_api_052_a_payment_that_does_not_go_through(
    scenario: Scenario, card: str, event: tuple[str, str]
) -> None:
    scenario.save_card(card)
    for _ in range(2):
        scenario.collect()
    assert events()[1:] == [event]


def test_api_052_a_credit_note_that_settles_the_rest(scenario: Scenario) -> None:
    settlement.record_payment(
        invoice=the_invoice(),
        amount=Money.of("1.00", "USD"),
        received_on=at("2026-04-05").date(),
        reference="T1",
        recorded_by="Op",
    )
    credit_notes.issue_credit_note(
        invoice=the_invoice(),
        net=Money.of("3.00", "USD"),
        reason="goodwill",
        by="Op",
        on=at("2026-04-16").date(),
    )
    assert events()[1:] == [
        ("payment.succeeded", "succeeded"),
        ("credit_note.issued", "issued"),
        ("invoice.paid", "paid"),
    ]


def test_api_052_a_wallet_that_is_topped_up_and_runs_low(lab: Cluster) -> None:
    tenant = lab.accounts.get().ownerships.get().tenant
    wallet_terms.set_scheme(
        tenant=tenant, unit="USD", scope=WalletScope.TENANT, overdraft=0, since=at("2026-03-01")
    )
    wallet = tenant.wallets.get()
    given = grants.grant(wallet=wallet, amount=1000, key="gift", who="Op", moment=at("2026-03-01"))
    AutomaticTopUp.objects.create(
        wallet=wallet,
        tenant=tenant,
        threshold=500,
        amount=1000,
        monthly_limit=1000,
        set_at=at("2026-03-01"),
        set_by="ann",
    )

    def spend(amount: int) -> None:
        row = entries.locked([wallet.pk])[wallet.pk]
        entries.post(
            row,
            Booking(
                [Piece(given.pk, -amount)], EntrySide.SPENT, at("2026-03-02"), day=at("2026-03-02").date()
            ),
        )

    spend(500)
    assert events() == [("wallet.topped_up", "topped_up")]
    for _ in range(2):
        spend(1)
    assert events() == [("wallet.topped_up", "topped_up"), ("wallet.low", "low")]


def test_api_052_a_close_that_has_finished(lab: Cluster) -> None:
    for kind in (CloseKind.PREVIEW, CloseKind.ISSUE):
        run = close_runs.request_run(month="2026-03", kind=kind, by="op", moment=at("2026-04-03"))
        for _ in range(2):
            close_runs.perform_run(run.pk, clock=lambda: at("2026-04-03"))
    finished = events("close.finished")
    assert finished == [("close.finished", "preview"), ("close.finished", "issue")]
    assert not Event.objects.filter(type="close.finished", tenant__isnull=False).exists()


def test_api_052_a_cluster_that_is_stale_once_until_its_watermark_moves(lab: Cluster) -> None:
    Connection.objects.create(cluster=lab, base_url="http://127.0.0.1:1")
    Cluster.objects.update(complete_through=at("2026-04-02 00:00"))
    for hours in (2, 3, 4):
        stale_clusters.record_stale(moment=at("2026-04-02 00:00") + timedelta(hours=hours))
    assert events() == [("cluster.stale", "stale")]
    Cluster.objects.update(complete_through=at("2026-04-02 05:00"))
    stale_clusters.record_stale(moment=at("2026-04-02 06:59"))
    assert events() == [("cluster.stale", "stale")]
    stale_clusters.record_stale(moment=at("2026-04-02 08:00"))
    assert events() == [("cluster.stale", "stale")] * 2


def test_api_052_rows_that_are_set_aside_for_the_first_time(lab: Cluster) -> None:
    def read(day: int, raw: str) -> None:
        usage_ingest.ingest(
            cluster=lab,
            rows=[a_bad_row(raw=raw)],
            reading=Reading(),
            source="march.sacct",
            moment=at(f"2026-04-0{day}"),
        )

    read(4, "17|")
    read(5, "17|")
    assert events() == [("usage.quarantined", "quarantined")]
    read(6, "18|")
    assert events() == [("usage.quarantined", "quarantined")] * 2
