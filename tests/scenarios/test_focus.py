"""A month as a FOCUS 1.2 dataset: each document's charges add up to it, whatever was corrected, credited or taxed."""

from __future__ import annotations

import csv
import io
import json
from collections import defaultdict
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from billing.catalog import version_terms
from billing.invoicing import credit_notes, manual_lines, voids
from billing.models import Invoice
from billing.reports import focus, focus_documents, focus_files
from billing.reports.focus_columns import COLUMNS, MANDATORY, Status
from billing.rules.money import Money
from portal.core.tenants.models import Corrections, Tenant
from tests.builders import a_cluster, a_job, a_plan, a_tenant, at, ingest
from tests.paying import pays
from tests.scenarios.test_commands_operator import answer_of
from tests.stories import close, closed, invoice_of
from tests.terms import TWO_DOLLARS, a_version

pytestmark = pytest.mark.django_db

Row = dict[str, str]


def a_lab(corrections: str = Corrections.CREDIT_NOTE) -> Tenant:
    """At 19 % tax and 2.00: Ben used a GPU for 20 minutes on the 2nd, Ada one for 10 on the 2nd and 20 on the 3rd."""
    cluster = a_cluster(complete_through="2026-09-01")
    lab = a_tenant(
        "vision-lab",
        plan=a_plan("standard"),
        accounts=[(cluster, "vision")],
        corrections=corrections,
        tax_rate=Decimal(19),
    )
    ingest(
        cluster,
        a_job(source_key="1", queue="long", started="2026-03-02 10:00", ended="2026-03-02 10:20"),
        a_job(source_key="2", user="ada", started="2026-03-02 10:00", ended="2026-03-02 10:10"),
        a_job(source_key="3", user="ada", started="2026-03-03 10:00", ended="2026-03-03 10:20"),
    )
    return lab


def read(*tenants: Tenant, month: str = "2026-03", now: str = "2026-08-01") -> tuple[Status, list[Row]]:
    year, number = map(int, month.split("-"))
    dataset = focus.make_dataset(tenants=tenants, month=(year, number), moment=at(now))
    content = b"".join(focus_files.as_csv(dataset.charges)).decode()
    return dataset.status, list(csv.DictReader(io.StringIO(content)))


def checked(rows: list[Row]) -> list[Row]:
    """What the official validator only pretends to check, and the sums of every issued document."""
    sums: dict[str, Decimal] = defaultdict(Decimal)
    for row in rows:
        sums[row["InvoiceId"]] += Decimal(row["BilledCost"])
        assert all(row[name] for name in MANDATORY if name not in NULLABLE), row
        assert row["ChargePeriodStart"] < row["ChargePeriodEnd"]
        assert not {"N/A", "None", "null"} & {*row.values()}
        for price, cost in (("ListUnitPrice", "ListCost"), ("ContractedUnitPrice", "ContractedCost")):
            if row[price]:
                assert Decimal(row[price]) * Decimal(row["PricingQuantity"]) == Decimal(row[cost]), row
                assert Decimal(row[price]) >= 0
            else:
                assert row[cost] == row["BilledCost"], row
        if row["ChargeCategory"] in {"Usage", "Purchase"} and not row["ChargeClass"]:
            assert all(row[name] for name in ("ListUnitPrice", "PricingQuantity", "SkuId", "SkuPriceId")), row
        assert bool(row["PricingQuantity"]) == bool(row["PricingUnit"])
        assert (
            bool(row["ConsumedQuantity"])
            == bool(row["ConsumedUnit"])
            == (row["ChargeCategory"] == "Usage" and bool(row["ListUnitPrice"]))
        )
        assert row["ChargeClass"] == (
            "Correction" if row["ChargePeriodStart"] < row["BillingPeriodStart"] else ""
        )
    for invoice in Invoice.objects.issued().filter(number__in=[number for number in sums if number]):
        assert sums[str(invoice.number)] == Decimal(Money.from_minor(invoice.total, invoice.currency).text)
    return rows


NULLABLE = ("ChargeClass", "PricingQuantity", "PricingUnit")


def told(rows: list[Row], *names: str) -> list[tuple[str, ...]]:
    return [tuple(row[name] for name in names) for row in rows]


def test_api_058_use_is_divided_by_day_and_user_and_the_tax_is_a_row_of_its_own() -> None:
    lab = a_lab()
    closed("2026-03", lab)

    status, rows = read(lab)

    assert (status, list(rows[0])) == (Status.FINAL, list(COLUMNS))
    assert len(MANDATORY) == 21
    columns = (
        "ChargeCategory",
        "ChargePeriodStart",
        "ChargePeriodEnd",
        "BilledCost",
        "ListCost",
        "x_JobCount",
    )
    assert told(checked(rows), *columns) == [
        ("Usage", "2026-03-02T10:00:00Z", "2026-03-02T10:10:00Z", "0.33", "0.333333334", "1"),
        ("Usage", "2026-03-02T10:00:00Z", "2026-03-02T10:20:00Z", "0.67", "0.666666666", "1"),
        ("Usage", "2026-03-03T10:00:00Z", "2026-03-03T10:20:00Z", "0.67", "0.666666666", "1"),
        ("Tax", "2026-03-01T00:00:00Z", "2026-04-01T00:00:00Z", "0.32", "0.32", ""),
    ]
    first, last = rows[1], rows[-1]
    assert json.loads(first["Tags"]) == {
        "clustertab/tenant": "vision-lab",
        "clustertab/cluster": "gpu1",
        "clustertab/user": "ben",
        "clustertab/queue": "long",
        "clustertab/gpu_model": "a100",
    }
    assert (first["ResourceId"], first["SubAccountName"], first["SkuMeter"], first["PricingUnit"]) == (
        "clusters/gpu1/accounts/vision",
        "vision",
        "gpu-hour",
        "GPU-Hours",
    )
    assert (last["ListUnitPrice"], last["PricingQuantity"], last["SkuId"], last["Tags"]) == ("", "", "", "")


def test_api_058_a_credit_note_is_a_correction_of_the_original_period_and_the_invoice_stays() -> None:
    lab = a_lab()
    closed("2026-03", lab)
    _, before = read(lab)
    ingest(
        a_cluster(), a_job(source_key="1", queue="long", started="2026-03-02 10:00", ended="2026-03-02 10:05")
    )
    closed("2026-04", lab)
    credit_notes.issue_credit_note(
        invoice=invoice_of(lab, "2026-03"),
        reason="Queue down",
        by="op",
        on=date(2026, 5, 7),
        net=Money.of("0.10", "USD"),
    )

    assert read(lab)[1] == before
    _, april = read(lab, month="2026-04")
    _, may = read(lab, month="2026-05")
    columns = (
        "InvoiceId",
        "ChargeCategory",
        "ChargeClass",
        "ChargePeriodStart",
        "BilledCost",
        "x_CorrectedInvoiceId",
    )
    assert told(checked(april), *columns) == [
        ("CN-2026-0001", "Usage", "Correction", "2026-03-02T10:00:00Z", "-0.50", "INV-2026-0001"),
        ("CN-2026-0001", "Tax", "Correction", "2026-03-01T00:00:00Z", "-0.10", "INV-2026-0001"),
    ]
    assert told(checked(may), *columns) == [
        ("CN-2026-0002", "Credit", "Correction", "2026-03-01T00:00:00Z", "-0.10", "INV-2026-0001"),
        ("CN-2026-0002", "Tax", "Correction", "2026-03-01T00:00:00Z", "-0.02", "INV-2026-0001"),
    ]


def test_corrections_on_the_next_invoice_keep_their_period_and_late_use_is_no_correction() -> None:
    lab = a_lab(Corrections.NEXT_INVOICE)
    used = a_job(source_key="0", started="2026-02-03 10:00", ended="2026-02-03 11:00")
    closed("2026-02", lab)
    closed("2026-03", lab)
    longer = a_job(source_key="1", queue="long", started="2026-03-02 10:00", ended="2026-03-02 11:00")
    ingest(
        a_cluster(), longer, used, a_job(source_key="4", started="2026-04-05 10:00", ended="2026-04-05 11:00")
    )
    closed("2026-04", lab)

    status, april = read(lab, month="2026-04")

    assert status is Status.FINAL
    columns = ("ChargeCategory", "ChargeClass", "ChargePeriodStart", "BilledCost", "ListCost")
    use = [row for row in april if row["ChargeCategory"] == "Usage"]
    assert told(use, *columns) == [
        ("Usage", "", "2026-04-05T10:00:00Z", "2.00", "2.0"),
        ("Usage", "", "2026-02-03T10:00:00Z", "2.00", "2.0"),
        ("Usage", "Correction", "2026-03-02T10:00:00Z", "1.33", "1.333333334"),
    ]
    assert sum(Decimal(row["BilledCost"]) for row in april) == Decimal("6.34")


def test_fees_discounts_and_lines_by_hand_are_charges_of_their_own() -> None:
    version = a_version(TWO_DOLLARS, allowance="1")
    version_terms.set_fee(version=version, name="Support", amount=Decimal("30.00"))
    cluster = a_cluster(complete_through="2026-09-01")
    lab = a_tenant(
        "vision-lab", plan=version.plan, plan_from=date(2026, 3, 1), accounts=[(cluster, "vision")]
    )
    ingest(cluster, a_job(gpus=3, user="=cmd|x"), a_job(gpus=2, user="ada"))
    for amount, text in (("10.00", "Setup"), ("-2.50", "@Goodwill")):
        manual_lines.add_manual_line(
            tenant=lab,
            description=text,
            net=Money.of(amount, "USD"),
            reason="-",
            by="op",
            on=date(2026, 4, 2),
        )
    closed("2026-03", lab)

    _, rows = read(lab)

    columns = ("ChargeCategory", "ChargeFrequency", "ChargeDescription", "BilledCost", "ListUnitPrice")
    assert told(rows, *columns) == [
        ("Usage", "Usage-Based", "GPU time", "4.80", "1.6"),
        ("Usage", "Usage-Based", "GPU time", "3.20", "1.6"),
        ("Purchase", "Recurring", "Support", "30.00", "30.00"),
        ("Purchase", "One-Time", "Setup", "10.00", "10.00"),
        ("Credit", "One-Time", "'@Goodwill", "-2.50", ""),
    ]
    assert sum(Decimal(row["BilledCost"]) for row in checked([rows[0], *rows[1:]])) == Decimal("45.50")


def test_a_void_invoice_is_gone_and_its_month_is_preliminary_until_it_is_billed_again() -> None:
    lab = a_lab()
    closed("2026-03", lab)
    voids.void_invoice(invoice=invoice_of(lab, "2026-03"), reason="Wrong", by="op", on=date(2026, 4, 4))

    status, rows = read(lab)

    assert status is Status.PRELIMINARY
    assert {(row["InvoiceId"], row["x_Status"]) for row in checked(rows)} == {("", "preliminary")}
    assert sum(Decimal(row["BilledCost"]) for row in rows) == Decimal("1.99")
    close("2026-03", on="2026-04-05")
    status, rows = read(lab)
    assert (status, {row["InvoiceId"] for row in checked(rows)}) == (Status.FINAL, {"INV-2026-0002"})


def test_api_060_an_open_month_says_so_and_a_closed_one_is_the_same_bytes_twice() -> None:
    lab = a_lab()

    def content() -> tuple[str, bytes]:
        dataset = focus.make_dataset(tenants=[lab], month=(2026, 3), moment=at("2026-03-20"))
        name = focus_files.file_name(dataset, of=lab.slug)
        return name, b"".join(focus_files.as_csv(dataset.charges))

    name, bytes_of_open = content()
    assert (name, content()[1]) == ("focus-1.2-vision-lab-2026-03-preliminary.csv", bytes_of_open)
    before = [(row["BilledCost"], row["Tags"]) for row in read(lab)[1]]
    closed("2026-03", lab)
    status, rows = read(lab)
    assert (status, [(row["BilledCost"], row["Tags"]) for row in rows]) == (Status.FINAL, before)
    ingest(
        a_cluster(), a_job(source_key="2", user="eva", started="2026-03-02 10:00", ended="2026-03-02 12:00")
    )
    assert read(lab)[1] == rows  # what came later is on no document yet


def test_what_another_tenant_used_is_a_charge_of_who_pays_without_its_people() -> None:
    plan = a_plan("standard", currency="JPY", prices=[("gpu-hour", {}, "300", date(2017, 1, 1))])
    cluster = a_cluster(complete_through="2026-09-01")
    faculty = a_tenant("faculty", plan=plan, accounts=[(cluster, "faculty")])
    lab = a_tenant("vision-lab", plan=plan, accounts=[(cluster, "vision")])
    pays(faculty, lab, "2026-03-01")
    ingest(cluster, a_job(), a_job(account="faculty", user="fay", ended="2026-03-02 10:30"))
    close("2026-03")

    _, rows = read(faculty, lab)

    columns = ("BillingAccountId", "BilledCost", "PricingQuantity", "ListCost", "ResourceName", "Tags")
    tags = {"tenant": "faculty", "cluster": "gpu1", "user": "fay", "gpu_model": "a100"}
    own = json.dumps({f"clustertab/{name}": value for name, value in tags.items()}, separators=(",", ":"))
    assert told(checked(rows), *columns) == [
        ("tenants/faculty", "150.0", "0.500000000", "150.0", "faculty", own),
        ("tenants/faculty", "300.0", "1.000000000", "300.0", "", ""),
    ]


def test_op_writes_the_file_at_the_shell(tmp_path: Path) -> None:
    lab = a_lab()
    closed("2026-03", lab)
    path = tmp_path / "march.csv"

    answer, code = answer_of("export_focus", "2026-03", path, "--tenant", "vision-lab")

    size = path.stat().st_size
    assert (answer, code) == ({"month": "2026-03", "status": "final", "file": "march.csv", "bytes": size}, 0)
    assert len(path.read_text().splitlines()) == 5
    assert answer_of("export_focus", "2026-13", path)[1] == 2
    assert answer_of("export_focus", "2026-03", tmp_path / "no" / "folder.csv")[1] == 1


@pytest.mark.parametrize("reader", ["issued", "drafted"])
def test_a_close_while_documents_are_read_leaves_neither_both_of_a_period_nor_none(
    reader: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = a_lab()
    reads = getattr(focus_documents, reader)

    def closed_before(*arguments: Any, **named: Any) -> Iterator[Any]:
        monkeypatch.setattr(focus_documents, reader, reads)
        close("2026-03", lab)
        yield from reads(*arguments, **named)

    monkeypatch.setattr(focus_documents, reader, closed_before)
    _, rows = read(lab)
    assert {row["InvoiceId"] for row in rows} == {invoice_of(lab, "2026-03").number}
    assert rows == read(lab)[1]
