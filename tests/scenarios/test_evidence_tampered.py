"""Whoever changes evidence is found out: by the signature, and by the program though it is signed anew."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from billing.models import Invoice, SigningKey
from tests import stories
from tests.builders import LONG_AGO, a_cluster, a_job, a_plan, a_seller, a_tenant, ingest
from tests.evidence import (
    Files,
    Row,
    agrees,
    bundle,
    changed,
    files_of,
    in_invoice,
    in_usage,
    packed,
    verified,
)

pytestmark = pytest.mark.django_db

Change = Callable[[Files], None]


@pytest.fixture
def march() -> Invoice:
    """Slices of a seventh that were suspended, eight GPUs for 18 hours, and cores; taxed at 19 %."""
    cluster = a_cluster()
    prices: list[Any] = [("gpu-hour", {}, "3.10", None), ("cpu-core-hour", {}, "0.05", None)]
    plan = a_plan(prices=[(*price[:3], LONG_AGO) for price in prices], charges=("gpu", "cpu"))
    a_seller(
        name="North",
        address="Hafenstraße 1",
        country="DE",
        vat_id="DE811234565",
        iban="DE89370400440532013000",
    )
    tenant = a_tenant(
        plan=plan, tax_rate="19", country="DE", address="Gate 1\n10115 Berlin", accounts=[(cluster, "vision")]
    )
    ingest(
        cluster,
        a_job(
            job_id="16", gpus=3, gpu_share=(1, 7), ended="2026-03-02 13:07:11", suspended=611, cpu_milli=1500
        ),
        a_job(job_id="17", gpus=8, ended="2026-03-03 04:00"),
        as_of="2026-05-01",
    )
    stories.close("2026-03")
    return stories.invoice_of(tenant, "2026-03")


def row(number: int, **cells: str) -> Change:
    return in_usage(lambda rows: rows[number].update(cells))


def moved(replaced: Mapping[str, str]) -> Change:
    """Job 17, of which all moments say something else."""

    def change(rows: list[Row]) -> None:
        for name in ("started", "ended", "service_from", "service_to"):
            for old, new in replaced.items():
                rows[2][name] = rows[2][name].replace(old, new)

    return in_usage(change)


def twice(rows: list[Row]) -> None:
    rows.append(dict(rows[2]))


def twice_and_paid(files: Files) -> None:
    """One record billed twice, with everything that is computed from it."""
    in_usage(twice)(files)

    def more(invoice: dict[str, Any]) -> None:
        line = next(line for line in invoice["lines"] if line["meter"] == "gpu-hour")
        extra = 446_40  # 8 GPUs for 18 hours at 3.10
        line["seconds"] = str(Fraction(line["seconds"]) + 8 * 18 * 3600)
        line["amount"] += extra
        net = invoice["subtotal"] + extra
        tax = (net * 19 + 50) // 100
        invoice["taxes"][0].update(net=net, tax=tax)
        invoice.update(subtotal=net, tax=tax, total=net + tax, due=net + tax)

    in_invoice(more)(files)


def line_twice(change: Callable[[dict[str, Any]], None], jobs: str = "") -> Change:
    """The GPUs are charged a second time on a line of their own, and everything that is computed from it fits."""

    def more(invoice: dict[str, Any]) -> None:
        again = dict(invoice["lines"][1])
        change(again)
        invoice["lines"].append(again)
        net = sum(line["amount"] for line in invoice["lines"])
        total = net + (net * 19 + 50) // 100
        invoice["taxes"][0].update(net=net, tax=total - net)
        invoice.update(subtotal=net, tax=total - net, total=total, due=total)

    def do(files: Files) -> None:
        in_invoice(more)(files)
        in_usage(lambda rows: rows.extend([row | {"line": jobs} for row in rows[1:] if jobs]))(files)

    return do


def asks_more(**paid: Any) -> Change:
    """What was paid before is below zero, so that more is due than the total."""
    return in_invoice(lambda document: document.update(paid, due=document["total"] + 50_00))


def two_sums_of_a_rate(invoice: dict[str, Any]) -> None:
    rate = invoice["taxes"][0]
    invoice["lines"][0]["tax"] = ["S", "19.0"]
    parts = [(line["amount"], (line["amount"] * 19 + 50) // 100) for line in invoice["lines"]]
    invoice["taxes"] = [
        rate | {"rate": text, "net": net, "tax": tax}
        for text, (net, tax) in zip(("19.0", "19"), parts, strict=True)
    ]
    tax = sum(tax for _, tax in parts)
    invoice.update(tax=tax, total=invoice["subtotal"] + tax, due=invoice["subtotal"] + tax)


def line(number: int, **fields: Any) -> Change:
    return in_invoice(lambda document: document["lines"][number].update(fields))


def document(**fields: Any) -> Change:
    return in_invoice(lambda document: document.update(fields))


def tax(**fields: Any) -> Change:
    return in_invoice(lambda document: document["taxes"][0].update(fields))


def of_file(name: str, content: bytes) -> Change:
    return lambda files: files.update({name: content})


TAMPERINGS = {
    "a job in another year": (
        moved({"2026-": "2025-"}),
        "job 17: its stretch lies outside of the line's period",
    ),
    "a job in another month": (
        moved({"-03-": "-04-"}),
        "job 17: its stretch lies outside of the line's period",
    ),
    "a stretch moved by ten hours": (
        row(2, service_from="2026-03-02T20:00:00Z", service_to="2026-03-03T14:00:00Z"),
        "job 17: its stretch lies outside of the time in which it ran",
    ),
    "a start that is earlier": (
        row(2, service_from="2026-03-02T09:00:00Z"),
        "job 17: its stretch lies outside",
    ),
    "an end that is earlier": (row(2, service_to="2026-03-03T03:00:00Z"), "job 17: it held 489600 units"),
    "a stretch that ends before it begins": (row(2, service_to="2026-03-01T00:00:00Z"), "lies outside"),
    "more GPUs": (row(2, count="9"), "job 17: it held 583200 units × seconds then, its row says 518400"),
    "less suspended": (
        row(1, suspended="0"),
        "job 16: it held 33693 units × seconds then, its row says 31860",
    ),
    "suspended for longer than it ran": (
        row(1, suspended="99999999"),
        "job 16: it was suspended for 99999999 of",
    ),
    "more units": (row(2, units="518401"), "its row says 518401"),
    "units taken back": (row(2, units="-518400"), "its jobs held"),
    "another share": (row(1, share_den="2"), "its jobs held"),
    "a share above one": (row(1, share_num="8"), "job 16: one unit is 8/7 of what a gpu-hour counts"),
    "a core that is more than a core": (
        row(0, share_den="100"),
        "one unit is 1/100 of what a cpu-core-hour counts",
    ),
    "one record billed twice": (
        in_usage(twice),
        "job 17: it is billed twice for the same time, also on line 2",
    ),
    "one record billed twice, and paid": (twice_and_paid, "job 17: it is billed twice for the same time"),
    "a job less": (in_usage(lambda rows: rows.pop(0)), "its jobs held 0 seconds"),
    "a job of another line": (row(2, line="1"), "line 2 (GPU time): its jobs held"),
    "a job of no line": (row(2, line="7"), "jobs stand behind line 7, which the invoice does not have"),
    "a sum in the place of a job": (row(2, record=""), "line 2: a sum stands in the place of its jobs"),
    "another price": (line(1, unit_price="3.20"), "comes to"),
    "another quantity": (line(1, seconds="1"), "the line says 1"),
    "another amount": (line(1, amount=1_00), "the line says 1.00 USD"),
    "another line's period": (
        line(1, service=["2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z"]),
        "lies outside of the line's period, 2026-02-01T00:00:00Z to 2026-03-01T00:00:00Z",
    ),
    "another subtotal": (document(subtotal=1), "the subtotal says 0.01 USD"),
    "another rate": (tax(rate="20"), "20 % is of 0.00 USD"),
    "another tax": (tax(tax=1), "the invoice says 0.01 USD"),
    "another total": (document(total=1), "do not add up to 0.01 USD"),
    "a line twice": (line_twice(lambda line: None), "line 2 stands there 2 times"),
    "a line twice, its number a text": (
        line_twice(lambda line: line.update(position="2")),
        "line 2 stands there 2 times",
    ),
    "a line twice, of a meter that is none": (
        line_twice(lambda line: line.update(position=3, meter="GPU-hour", term=0), jobs="3"),
        "line 3: GPU-hour is no meter",
    ),
    "another period": (
        document(period=["2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z"]),
        "line 2 (GPU time): its period ends behind the invoice's",
    ),
    "a day of issue before the period's end": (
        document(issued_on="2026-03-30"),
        "it was issued on 2026-03-30, before its period ended, 2026-04-01T00:00:00Z",
    ),
    "a rate with two sums": (in_invoice(two_sums_of_a_rate), "one rate of tax has several sums"),
    "a credit balance that takes": (
        asks_more(from_credit=-50_00),
        "a credit balance cannot pay -50.00 USD of",
    ),
    "a wallet that takes": (
        asks_more(prepaid=-50_00, wallet=[{"grant": "g", "expires": "", "amount": -50_00}]),
        "a wallet cannot pay -50.00 USD of",
    ),
    "a credit balance that pays more than there is": (
        in_invoice(lambda document: document.update(from_credit=document["total"] + 1, due=-1)),
        "a credit balance cannot pay",
    ),
    "more due": (document(due=1), "is not the 0.01 USD that is due"),
}
"""What is changed, and a sentence of the program, which says so though it is signed by whoever changed it."""


@pytest.mark.peers  # takes long
@pytest.mark.parametrize(("change", "sentence"), TAMPERINGS.values(), ids=TAMPERINGS)
def test_whoever_changes_evidence_is_found_out(
    march: Invoice, tmp_path: Path, change: Change, sentence: str
) -> None:
    content = bundle(march)
    code, text = verified(changed(content, change), tmp_path)
    assert (code, sentence in text, "DIFFERS  " in text) == (1, True, True), text
    code, text = verified(changed(content, change, signed=False), tmp_path)
    assert code == 1, text
    assert "is not what was signed" in text


UNREADABLE = {
    "digits of another script": (row(2, count="٨"), "is not written as numbers are here"),
    "digits with a line between": (row(2, count="0_8"), "'0_8' is not written as numbers are here"),
    "digits with a blank": (row(2, units=" 518400"), "is not written as numbers are here"),
    "a price of another script": (line(1, unit_price="٣.١"), "is not written as numbers are here"),
    "a number of 4,000 digits": (
        line(1, unit_price="1/" + "7" * 4000),
        "is not written as numbers are here",
    ),
    "an amount with a part": (line(1, amount=450_32.5), "45032.5 is no whole number"),
    "a second that is the next minute's": (
        row(2, service_to="2026-03-03T03:59:60Z"),
        "'2026-03-03T03:59:60Z' is not written as moments are here",
    ),
    "a total that is said twice": (
        lambda files: files.update(
            {"invoice.json": files["invoice.json"].replace(b'"total"', b'"total": 1, "total"', 1)}
        ),
        "it says twice what total is",
    ),
    "a column twice": (
        lambda files: files.update({"usage.csv": files["usage.csv"].replace(b"line,", b"units,", 1)}),
        "usage.csv has two columns of one name",
    ),
    "a cell more": (
        lambda files: files.update({"usage.csv": files["usage.csv"].rstrip() + b",1\n"}),
        "line 4 of usage.csv has 20 cells, not 19",
    ),
    "a cell of any length": (
        lambda files: files.update({"usage.csv": files["usage.csv"] + b"x" * 200_000}),
        "field larger than field limit",
    ),
    "brackets in brackets": (of_file("invoice.json", b"[" * 200_000), "This is no evidence of an invoice"),
}
"""What one reads so, and another otherwise or not at all; and a sentence of the program."""


@pytest.mark.parametrize(("change", "sentence"), UNREADABLE.values(), ids=UNREADABLE)
def test_what_can_be_read_in_two_ways_is_refused(
    march: Invoice, tmp_path: Path, change: Change, sentence: str
) -> None:
    code, text = verified(changed(bundle(march), change), tmp_path)
    assert (code, sentence in text, "Traceback" in text) == (2, True, False), text


def test_a_bundle_that_is_packed_in_another_way_is_refused(march: Invoice, tmp_path: Path) -> None:
    content = bundle(march)
    files = files_of(content)
    raw = bytearray(packed(files))
    entry = raw.rfind(b"PK\x01\x02", 0, raw.rfind(b"usage.csv"))
    into = io.BytesIO()
    with zipfile.ZipFile(into, "w", zipfile.ZIP_LZMA) as new:
        for name, body in files.items():
            new.writestr(name, body)
    encrypted = raw[: entry + 8] + b"\x01" + raw[entry + 9 :]
    for other, sentence in ((encrypted, "is encrypted"), (into.getvalue(), "in a way that bundles are not")):
        (tmp_path / "other.zip").write_bytes(other)
        code, text = verified(content, tmp_path, "other.zip")
        assert (code, sentence in text, "Traceback" in text) == (2, True, False), text


ONLY_SIGNED = {
    "a job moved by ten hours, wherever it says so": (
        moved({"02T10": "02T20", "03T04": "03T14"}),
        "usage.csv",
    ),
    "another buyer": (in_invoice(lambda document: document["buyer"].update(name="Eve")), "invoice.json"),
    "another job id": (row(2, job="99"), "usage.csv"),
    "another person": (row(2, person="u99"), "usage.csv"),
    "another PDF": (of_file("invoice.pdf", b"%PDF"), "invoice.pdf"),
    "another e-invoice": (of_file("factur-x.xml", b"<x/>"), "factur-x.xml"),
}
"""What no arithmetic can find: the signature does."""


@pytest.mark.parametrize(("change", "name"), ONLY_SIGNED.values(), ids=ONLY_SIGNED)
def test_what_fits_is_found_by_the_signature(
    march: Invoice, tmp_path: Path, change: Change, name: str
) -> None:
    content = bundle(march)
    code, text = verified(changed(content, change, signed=False), tmp_path)
    assert (code, f"DIFFERS  {name} is not what was signed" in text) == (1, True), text
    code, text = verified(changed(content, change), tmp_path, "--key", SigningKey.objects.get().public)
    assert (code, "which is none of those that you trust" in text) == (1, True), text


def test_the_bundle_itself_agrees_and_says_amounts_in_the_currencys_unit(
    march: Invoice, tmp_path: Path
) -> None:
    text = agrees(bundle(march), tmp_path)
    assert f"total {march.total // 100}.{march.total % 100:02d} USD" in text


def test_a_job_that_stands_there_under_two_records_is_said(march: Invoice, tmp_path: Path) -> None:
    """It may have two parts; that one of them is made up no arithmetic can find."""

    def more(files: Files) -> None:
        twice_and_paid(files)
        in_usage(lambda rows: rows[3].update(record="999999"))(files)

    code, text = verified(changed(bundle(march), more), tmp_path)
    assert (code, "; job 17 under several records for the same time, so ask why; " in text) == (0, True)
    assert "under several records" not in agrees(bundle(march), tmp_path)


@pytest.mark.parametrize(
    ("change", "code", "sentence"),
    [
        (lambda files: files.pop("invoice.pdf"), 1, "invoice.pdf is missing"),
        (lambda files: files.update({"more.csv": b""}), 1, "more.csv was not signed"),
        (lambda files: files.update({"people.csv.pdf": b""}), 1, "people.csv.pdf was not signed"),
        (lambda files: files.update({"verify_invoice/a.pdf": b""}), 1, "verify_invoice/a.pdf was not signed"),
        (lambda files: files.pop("signature.json"), 2, "KeyError: 'signature.json'"),
        (lambda files: files.pop("usage.csv"), 2, "This is no evidence of an invoice"),
        (lambda files: files.update({"people.csv": b"person,name\n"}), 0, "agrees"),
    ],
)
def test_files_that_are_missing_or_more_are_said(
    march: Invoice, tmp_path: Path, change: Change, code: int, sentence: str
) -> None:
    exit_code, text = verified(changed(bundle(march), change, signed=False), tmp_path)
    assert (exit_code, sentence in text) == (code, True), text


def test_the_manifest_of_another_invoice_is_found(march: Invoice, tmp_path: Path) -> None:
    def other(files: Files) -> None:
        stated = json.loads(files["documents.json"])
        files["documents.json"] = json.dumps(stated | {"document": "INV-2026-0099"}).encode()

    text = verified(changed(bundle(march), other, signed=False), tmp_path)[1]
    assert "DIFFERS  documents.json is of INV-2026-0099, the invoice is INV-2026-0001" in text
