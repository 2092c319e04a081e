"""What an invoice of tokens looks like: its PDF, e-invoice, CSV, evidence, export of charges and journal."""

from __future__ import annotations

import csv
import io
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest
from django.db import transaction

from billing.documents.build import document_of
from billing.documents.einvoice import xml
from billing.models import Invoice, TaxRate
from billing.queries import line_usage
from billing.reports import focus
from billing.reports.focus_columns import PLACE
from clusters import meters
from clusters.models import Cluster
from tests.builders import a_seller, at
from tests.einvoices import LAB, NORTH
from tests.evidence import agrees, bundle, rows_of
from tests.stories import close, invoice_of, prove
from tests.sums import a_gateway, a_sum, a_user_of_tokens, push


@pytest.fixture
def gateway() -> Cluster:
    return a_gateway()


@pytest.fixture
def march(gateway: Cluster) -> Invoice:
    """12.5 million tokens in, 1 million out."""
    a_seller(**NORTH)
    TaxRate.objects.create(country="DE", rate=19, since=date(2021, 1, 1))
    vision = a_user_of_tokens(gateway, **LAB)
    push(
        gateway,
        a_sum("1", 12_000_000),
        a_sum("2", 500_000, "2026-03-31T22"),
        a_sum("3", 1_000_000, dimensions={"model": "small", "direction": "output"}),
    )
    close("2026-03")
    return invoice_of(vision, "2026-03")


@pytest.mark.django_db
def test_the_document_has_quantity_unit_and_price(march: Invoice) -> None:
    rows = [
        (row.description, row.quantity, row.unit, row.unit_price, row.amount)
        for row in document_of(march).lines
    ]
    assert rows == [
        ("LLM tokens, input", "12.5", "million tokens", "$0.60", "$7.50"),
        ("LLM tokens, output", "1", "million tokens", "$2.40", "$2.40"),
    ]


@pytest.mark.django_db
def test_the_e_invoice_says_the_unit_by_its_code(gateway: Cluster, march: Invoice) -> None:
    assert 'unitCode="C62">12.5' in xml(march).decode()
    assert 'unitCode="HUR"' not in xml(march).decode()


@pytest.mark.django_db
def test_the_csv_has_each_sum(march: Invoice) -> None:
    text = b"".join(line_usage.as_csv(march, list(march.lines.order_by("position")))).decode()
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [
        (row["job"], row["user"], row["gpu_model"], Decimal(row["hours"]), row["unit"]) for row in rows
    ] == [
        ("1", "ben", "direction=input, model=large", 12, "million tokens"),
        ("2", "ben", "direction=input, model=large", Decimal("0.5"), "million tokens"),
        ("3", "ben", "direction=output, model=small", 1, "million tokens"),
    ]


@pytest.mark.django_db
def test_the_evidence_recomputes_it(march: Invoice, tmp_path: Path) -> None:
    content = bundle(march)
    assert [row["job"] for row in rows_of(content)] == ["1", "2", "3"]
    agrees(content, tmp_path)


@pytest.mark.django_db
def test_focus_has_its_unit_and_dimensions(march: Invoice) -> None:
    with transaction.atomic():
        charges = list(
            focus.make_dataset(tenants=[march.tenant], month=(2026, 3), moment=at("2026-04-20")).charges
        )
    used = [charge for charge in charges if charge[PLACE["ChargeCategory"]] == "Usage"]
    names = ("SkuMeter", "PricingUnit", "PricingQuantity", "BilledCost", "Tags")
    assert [[charge[PLACE[name]] for name in names[:4]] for charge in used] == [
        ["llm-tokens", "million tokens", "12.000000000", "7.20"],
        ["llm-tokens", "million tokens", "0.500000000", "0.30"],
        ["llm-tokens", "million tokens", "1.000000000", "2.40"],
    ]
    assert '"clustertab/model":"large"' in used[0][PLACE["Tags"]]
    assert "gpu_model" not in used[0][PLACE["Tags"]]
    prove()


@pytest.mark.django_db
def test_energy_has_a_code_of_its_own(gateway: Cluster) -> None:
    assert (
        meters.declare_meter(name="energy", title="Energy", unit="kWh", decimals=3, unit_code="KWH").parts
        == 1000
    )
