"""Op comes in the morning: what is to be done, what the month brings in, who owes, and what the machines earn."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from billing.invoicing import credit_notes
from billing.models import CloseKind, CloseRun, OperatingCost
from billing.receivables import manual_payments
from billing.rules.money import Money
from clusters import declared_nodes
from clusters.declared_nodes import Node
from portal.core.tenants.models import OperatorRole, User
from tests import builders
from tests.web.clock import stand_at
from tests.web.house import House, a_house, page, signed_in
from tests.web.test_overview import words

pytestmark = pytest.mark.django_db

HOME = "/operator/"
NOW = "2026-04-28 09:00"


@pytest.fixture
def house(monkeypatch: pytest.MonkeyPatch) -> House:
    """$13.00 of the vision lab and $1.25 of the speech lab were due on 17 April; the cluster is read to the 20th."""
    stand_at(monkeypatch, NOW, of="portal.web.operator_home")
    return a_house()


def test_each_thing_that_waits_is_named_with_the_action_beside_it(house: House) -> None:
    op = signed_in(house.op)
    quiet = words(page(house.op, HOME))
    assert "March 2026 has no preview yet. Preview March 2026" in quiet
    assert (
        "Stale clusters No fresh usage of gpu1: their tenants cannot be invoiced. Check the connection"
        in quiet
    )
    cluster = User.objects.create_user(
        "c@cluster.example", builders.PASSWORD, operator_role=OperatorRole.CLUSTER
    )
    others = page(cluster, HOME)
    assert "March 2026 has no preview yet. Month-end close" in words(others)
    assert 'name="act" value="preview"' not in others
    assert "Unassigned" not in quiet.partition("To do")[2].partition("Receivables")[0]

    april = {"started": "2026-04-02 10:00", "ended": "2026-04-02 20:00"}
    builders.ingest(
        house.cluster,
        builders.a_job(account="stray", gpus=4, **april),
        builders.a_job(account="speech", gpu_model="h100", **april),
        builders.a_bad_row(raw="17|<b>vision"),
        as_of="2026-04-28 08:00",
    )
    assert house.transfer is not None
    manual_payments.record_transfer(
        invoice=house.invoice,
        amount=Money.of("13.00", "USD"),
        received_on=date(2026, 4, 10),
        reference="R1",
        recorded_by="op",
        at=builders.at(NOW),
    )
    credit_notes.issue_credit_note(invoice=house.invoice, reason="a present", by="op", on=date(2026, 4, 20))
    text = words(page(house.op, HOME))
    assert "Unassigned usage 40.00 GPU-hours of stray are billed to nobody. Assign" in text
    assert (
        "Unpriced usage 10.00 GPU-hours of speech-lab have no price: their close is blocked. Add a price"
        in text
    )
    assert "Quarantine 1 row could not be true or read, and are not billed. Look at them" in text
    assert "Bank transfers 1 transfer without a match. Match" in text
    assert "Refunds owed $13.00 to be paid back, from 1 invoice. Refund" in text
    assert "Stale clusters" not in text

    answer = op.post("/operator/close/", {"month": "2026-03", "act": "preview"})
    assert answer.status_code == 302  # what the button beside it sends
    assert CloseRun.objects.get().kind == CloseKind.PREVIEW


def test_revenue_receivables_and_margin_come_out_to_the_cent(house: House) -> None:
    """12 GPU-hours at 2.00 in April; 4 GPUs cost 1.00 an hour, of which 19 days are read."""
    declared_nodes.declare_nodes(cluster=house.cluster, nodes=[Node("n1", "a100", 4, since=date(2026, 4, 1))])
    builders.ingest(
        house.cluster,
        builders.a_job(job_id="30", gpus=4, started="2026-04-02 10:00", ended="2026-04-02 13:00"),
    )
    text = words(page(house.op, HOME))
    assert (
        "Revenue (USD) $24.00 ▲ +68.4 % vs. $14.25 in the same days of last month ($14.25 in all of it)"
        in text
    )
    assert "USD 2 invoices $0.00 $14.25 $0.00 $0.00 $0.00 $14.25" in text
    assert "gpu1 a100 12.00 0.7 % $24.00 – – " in text
    assert "Enter what a GPU-hour costs to run" in text

    OperatingCost.objects.create(currency="USD", amount=Decimal("1.00"), valid_from=date(2026, 1, 1))
    OperatingCost.objects.create(
        cluster=house.cluster,
        gpu_model="a100",
        currency="USD",
        amount=Decimal("0.50"),
        valid_from=date(2026, 4, 11),
    )
    # 4 GPUs: ten days at 1.00 and nine at 0.50 are 960 + 432; 1,812 of 1,824 GPU-hours were nobody's
    assert "gpu1 a100 12.00 0.7 % $24.00 $1,392.00 $1,382.84 -$1,368.00" in words(page(house.op, HOME))


def test_the_home_asks_twenty_queries_at_most_whatever_there_is(house: House) -> None:
    counts = []
    for months in (range(1, 3), range(3, 12)):
        builders.ingest(
            house.cluster,
            *(
                builders.a_job(
                    account=f"stray-{n}",
                    gpu_model=f"m{n}",
                    started=f"2026-04-{n:02d} 10:00",
                    ended=f"2026-04-{n:02d} 11:00",
                )
                for n in months
            ),
        )
        for n in months:
            cluster = builders.a_cluster(f"more-{n}", complete_through="2026-04-20")
            declared_nodes.declare_nodes(cluster=cluster, nodes=[Node("n1", "a100", 4)])
        client = signed_in(house.op)
        with CaptureQueriesContext(connection) as queries:
            assert client.get(HOME).status_code == 200
        counts.append(len(queries))
    assert counts[0] == counts[1]
    assert counts[1] <= 20
