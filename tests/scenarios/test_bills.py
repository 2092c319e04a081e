"""What a provider bills for rented machines is what they cost: the margin is by FOCUS datasets and AWS's reports.

Our own FOCUS export, of another provider's ClusterTab, is a real dataset. The rows of AWS are made from its dictionary
of the Cost and Usage Report (docs.aws.amazon.com/cur/latest/userguide/data-dictionary.html) and of its guide to
amortized cost; not yet seen from a live account.
"""

from __future__ import annotations

import csv
import gzip
import io
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, transaction

from billing.models import CostCharge, CostImport
from billing.reports import bills, operator_home
from billing.reports.bill_rows import BillError, snake
from clusters import capacity
from clusters.connectors.base import NodeSeen, NodeState
from clusters.models import Cluster
from portal.ops.cli import BadInputError, RefusedError
from tests.builders import a_cluster, a_job, a_plan, a_tenant, an_operator, at, ingest
from tests.scenarios.real import run
from tests.scenarios.test_operating_costs import APRIL
from tests.scenarios.test_transfers_at_once import somebody_waits_for_a_lock
from tests.stories import close
from tests.web.house import signed_in
from tests.web.test_overview import words

pytestmark = pytest.mark.django_db

HEADER = (
    "BilledCost,EffectiveCost,BillingAccountId,BillingCurrency,BillingPeriodStart,BillingPeriodEnd,ChargePeriodStart,"
    "ChargePeriodEnd,ChargeCategory,ProviderName,ResourceId,SubAccountId,Tags"
)


def charge(day: int, cost: str, resource: str = "i-1", **changes: str) -> str:
    """A day of April."""
    row = {
        "BilledCost": cost, "EffectiveCost": cost, "BillingAccountId": "acc-1", "BillingCurrency": "USD",
        "BillingPeriodStart": "2026-04-01T00:00:00Z", "BillingPeriodEnd": "2026-05-01T00:00:00Z",
        "ChargePeriodStart": f"2026-04-{day:02}T00:00:00Z",
        "ChargePeriodEnd": f"2026-04-{day + 1:02}T00:00:00Z" if day < 30 else "2026-05-01T00:00:00Z",
        "ChargeCategory": "Usage", "ProviderName": "Rack & Co", "ResourceId": resource, "SubAccountId": "gpu",
        "Tags": "", **changes,
    }  # fmt: skip
    out = io.StringIO()
    csv.DictWriter(out, HEADER.split(",")).writerow(row)
    return out.getvalue()


def a_bill(folder: Path, *rows: str, name: str = "april.csv") -> Path:
    file = folder / name
    file.write_text(f"{HEADER}\n" + "".join(rows))
    return file


@pytest.fixture
def lab() -> Cluster:
    """Worked example A: four GPUs at $2.00, fully booked in April, which is $5,760."""
    cluster = a_cluster()
    a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    job = a_job(gpus=4, gpu_model="rtx-4090", started="2026-04-01", ended="2026-05-01")
    ingest(cluster, job, as_of="2026-05-01")
    capacity.observe(
        cluster, [NodeSeen(name="n1", gpu_model="rtx-4090", gpus=4, state=NodeState.UP)], at("2026-04-01")
    )
    return cluster


def margin() -> tuple[str, str]:
    answer = run("report_cost", "gpu1", *APRIL, "--margin")["margin"]
    return answer["operating_cost"], answer["margin"]


def test_a_rented_cluster_costs_what_its_bill_says(lab: Cluster, tmp_path: Path) -> None:
    days = [charge(day, "96.00") for day in range(1, 31)]
    left_out = [
        charge(1, "547.20", ChargeCategory="Tax"),
        charge(1, "1000", SubAccountId="web"),
        charge(2, "-16.00", ResourceId="credit", ChargeCategory="Credit", SubAccountId="web"),
    ]
    bill = a_bill(tmp_path, *days, *left_out)
    only = ("--where", "SubAccountId=gpu")
    preview = run("import_bill", "gpu1", bill, *only, "--preview")
    assert preview == {
        "preview": True,
        "bills": [
            {
                "provider": "Rack & Co", "account": "acc-1", "period": "2026-04-01", "currency": "USD",
                "amount": "2880", "charges": 30, "new": 30, "gone": 0,
            }
        ],
        "taxes": 1,
        "others": 2,
    }  # fmt: skip
    assert not CostImport.objects.exists()
    with pytest.raises(RefusedError):
        margin()  # nothing says what it costs

    assert run("import_bill", "gpu1", bill, *only) == preview | {"preview": False}
    assert margin() == ("2880", "2880")
    again = run("import_bill", "gpu1", bill, *only)
    assert (again["bills"][0]["new"], again["bills"][0]["gone"]) == (0, 0)

    days[9] = charge(
        10, "90.50"
    )  # the provider's next delivery has another price for a day, and lacks the last one
    run("import_bill", "gpu1", a_bill(tmp_path, *days[:29]), *only)
    assert CostCharge.objects.count() == 29
    (home,) = operator_home.earned(moment=datetime(2026, 4, 30, tzinfo=UTC))
    assert home.cost is not None
    assert home.cost.amount == 28 * 96 + 90.5
    # the 30th is not billed yet, so that a rate counts: 4 GPUs × 24 h × $0.50
    (tmp_path / "rates.csv").write_text("gpu_model,currency,per_gpu_hour,from\n,USD,0.50,2026-01-01\n")
    run("import_costs", tmp_path / "rates.csv")
    assert margin()[0] == "2826.5"

    with gzip.open(tmp_path / "h.csv.gz", "wt") as file:  # two equal rows are two charges
        file.write(HEADER + "\n" + charge(3, "1.5", "switch") * 2)
    run("import_bill", "gpu1", tmp_path / "h.csv.gz", "--gpu-model", "h100")
    assert margin()[0] == "2829.5"
    with pytest.raises(BadInputError, match="charges that are counted for gpu1 already: 29"):
        run("import_bill", "gpu1", bill)


def test_what_is_no_bill_or_no_whole_one_is_refused_whole(lab: Cluster, tmp_path: Path) -> None:
    good = charge(1, "5")
    refusals = {
        "is in EUR and USD: amounts are not converted": a_bill(
            tmp_path, good, charge(2, "5", BillingCurrency="EUR"), name="a.csv"
        ),
        "row 3: it has 4 cells, and the header 13": a_bill(tmp_path, good, "1,2,3,4\n", name="b.csv"),
        "row 2: its EffectiveCost is 'free', which is no amount": a_bill(
            tmp_path, charge(1, "free"), name="c.csv"
        ),
        "row 2: its EffectiveCost is 'NaN'": a_bill(tmp_path, charge(1, "NaN"), name="d.csv"),
        "its ChargePeriodStart is '1026-04-01', which is not of our time": a_bill(
            tmp_path, charge(1, "1", ChargePeriodStart="1026-04-01"), name="e.csv"
        ),
        "'TOK' is no currency": a_bill(tmp_path, charge(1, "1", BillingCurrency="TOK"), name="f.csv"),
        "is neither a FOCUS dataset nor": (tmp_path / "g.csv"),
        "no charge but taxes": a_bill(tmp_path, charge(1, "1", ChargeCategory="Tax"), name="h.csv"),
        "is no whole Parquet file": tmp_path / "i.parquet",
        "is no whole CSV": tmp_path / "j.csv.gz",
        "cannot be read": tmp_path / "none.csv",
        "its last line has no end": tmp_path / "k.csv",
    }
    (tmp_path / "k.csv").write_text(f"Tags,{HEADER[:-5]}\n," + charge(1, "5", SubAccountId="12345")[:-5])
    (tmp_path / "g.csv").write_text("JobID|State\n1|COMPLETED\n")
    (tmp_path / "i.parquet").write_bytes(b"PAR1 and then nothing")
    whole = gzip.compress((HEADER + "\n" + good * 500).encode())
    (tmp_path / "j.csv.gz").write_bytes(whole[: len(whole) // 2])
    for sentence, file in refusals.items():
        with pytest.raises(BadInputError, match=sentence):
            run("import_bill", "gpu1", file)
    for options, sentence in (
        (("--where", "Cluster=lab"), "has no column 'Cluster' to select by"),
        (("--where", "SubAccountId"), "is not Column=Value"),
    ):
        with pytest.raises(BadInputError, match=sentence):
            run("import_bill", "gpu1", a_bill(tmp_path, good), *options)
    assert not CostImport.objects.exists()

    run("import_bill", "gpu1", a_bill(tmp_path, charge(1, "5", BillingCurrency="EUR")))
    with pytest.raises(RefusedError, match="is in EUR, and its revenue in USD: amounts are not converted"):
        margin()
    (home,) = operator_home.earned(moment=datetime(2026, 4, 30, tzinfo=UTC))
    assert home.cost is None


def imports(cluster: Cluster, file: Path, day: str, **options: Any) -> bills.Imported:
    moment = datetime.fromisoformat(day).replace(tzinfo=UTC)
    return bills.import_bills(cluster=cluster, files=[file], moment=moment, keep=True, **options)


def test_a_bill_that_comes_again_unchanged_goes_as_far_as_it_came(lab: Cluster, tmp_path: Path) -> None:
    """A fee for the month: with rates as well, the days after its first delivery would be paid twice."""
    bill = a_bill(tmp_path, charge(1, "2880", ChargePeriodEnd="2026-05-01T00:00:00Z"))
    (tmp_path / "rates.csv").write_text("gpu_model,currency,per_gpu_hour,from\n,USD,0.50,2026-01-01\n")
    run("import_costs", tmp_path / "rates.csv")
    imports(lab, bill, "2026-04-11")

    (again,) = imports(lab, bill, "2026-05-02").bills

    assert (again.new, again.gone) == (0, 0)
    assert margin()[0] == "2880"


@pytest.mark.django_db(transaction=True)
def test_a_bill_that_two_clusters_take_at_once_is_of_the_first(tmp_path: Path) -> None:
    one, other = a_cluster(), a_cluster("gpu2")
    bill = a_bill(tmp_path, charge(1, "5"))
    troubles: list[BaseException] = []

    def work() -> None:
        try:
            imports(other, bill, "2026-05-02")
        except BaseException as error:  # noqa: BLE001 - told below
            troubles.append(error)
        finally:
            connection.close()

    second = threading.Thread(target=work)
    with transaction.atomic():
        imports(one, bill, "2026-05-02")
        second.start()
        until = time.monotonic() + 30
        while not somebody_waits_for_a_lock() and time.monotonic() < until:
            time.sleep(0.02)
    second.join()
    (refusal,) = troubles
    assert isinstance(refusal, BillError)
    assert "charges that are counted for gpu1 already: 1" in str(refusal)
    assert CostImport.objects.get().cluster == one


def test_amounts_are_exact_and_noise_of_floats_is_no_reason_to_refuse(lab: Cluster, tmp_path: Path) -> None:
    """Providers reckon in floats, and tell what is left of a subtraction as it is."""
    smallest = "0." + "0" * 29 + "1"
    bill = a_bill(tmp_path, charge(1, "12345678"), charge(2, smallest), charge(3, "5.551115123125783e-17"))
    (imported,) = imports(lab, bill, "2026-05-02").bills
    assert imported.as_data()["amount"] == "12345678.000000000000000055511151231259"  # to 30 decimals


def test_rows_that_only_tags_tell_apart_are_two_charges(tmp_path: Path) -> None:
    bill = a_bill(tmp_path, *(charge(1, "5", Tags=f'{{"cluster": "{name}"}}') for name in ("gpu1", "gpu2")))
    for name in ("gpu1", "gpu2"):
        (imported,) = imports(a_cluster(name), bill, "2026-05-02", selection={"Tags.cluster": name}).bills
        assert (imported.charges, imported.new) == (1, 1)


CUR = (
    "bill/PayerAccountId,bill/BillingPeriodStartDate,lineItem/LineItemType,lineItem/UsageStartDate,lineItem/UsageEndDate,"
    "lineItem/CurrencyCode,lineItem/UnblendedCost,lineItem/UsageAccountId,resourceTags/user:cluster,"
    "savingsPlan/SavingsPlanEffectiveCost,savingsPlan/TotalCommitmentToDate,savingsPlan/UsedCommitment,"
    "reservation/EffectiveCost,reservation/UnusedAmortizedUpfrontFeeForBillingPeriod,reservation/UnusedRecurringFee,"
    "reservation/ReservationARN"
)
LINES = (  # the kind, unblended cost, and what AWS says of commitments; amortized: 10 + 4 + 2 + 3 + 1.5 = 20.5
    ("Usage", "10.0000000001", "", "", "", "", "", "", ""),
    ("SavingsPlanCoveredUsage", "9", "4", "", "", "", "", "", ""),
    ("SavingsPlanNegation", "-9", "", "", "", "", "", "", ""),
    ("SavingsPlanRecurringFee", "6", "", "6", "4", "", "", "", ""),
    ("SavingsPlanUpfrontFee", "500", "", "", "", "", "", "", ""),
    ("DiscountedUsage", "0", "", "", "", "3", "", "", "arn:1"),
    ("RIFee", "7", "", "", "", "", "1", "0.5", "arn:1"),
    ("Fee", "900", "", "", "", "", "", "", "arn:1"),
    ("Tax", "99", "", "", "", "", "", "", ""),
)


def cur(separate: bool = True) -> list[list[str]]:
    header = CUR.split(",")
    start, end = "2026-04-01T00:00:00Z", "2026-04-01T01:00:00Z"
    rows = [
        ["42", start, kind, start, end, "USD", unblended, "7", "lab", *more]
        for kind, unblended, *more in LINES
    ]
    return [header if separate else [snake(name) for name in header], *rows]


def test_aws_is_counted_as_its_commitments_are_used(lab: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "cur.csv"
    with file.open("w", newline="") as out:
        csv.writer(out).writerows(cur())
    tag = ("--where", "resourceTags/user:cluster=lab")
    answer = run("import_bill", "gpu1", file, *tag)
    assert [(bill["provider"], bill["account"], bill["amount"]) for bill in answer["bills"]] == [
        ("AWS", "42", "20.5000000001")
    ]
    assert snake("reservation/ReservationARN") == "reservation_reservation_a_r_n"
    assert snake("savingsPlan/SavingsPlanEffectiveCost") == "savings_plan_savings_plan_effective_cost"


def test_what_the_reader_of_parquet_warns_of_holds_up_no_row(
    lab: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, bill = tmp_path / "reader", tmp_path / "april.parquet"
    bill.write_bytes(b"PAR1")
    (tmp_path / "rows").write_text(f"{HEADER}\n{charge(1, '5')}")
    reader.write_text(f"#!/bin/sh\nhead -c 200000 /dev/zero >&2\ncat {tmp_path}/rows\n")
    reader.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(reader))
    answer = run("import_bill", "gpu1", bill, "--preview")
    assert [one["amount"] for one in answer["bills"]] == ["5"]
    (tmp_path / "rows").write_text(f"{HEADER}\n" + charge(1, "much") * 100_000)
    with pytest.raises(BadInputError, match="row 21: its EffectiveCost is 'much'"):
        run("import_bill", "gpu1", bill)
    reader.write_text(f"#!/bin/sh\ncat {tmp_path}/rows\necho Cut. >&2\nexit 1\n")
    (tmp_path / "rows").write_text(f"{HEADER}\n{charge(1, '5')}")
    with pytest.raises(BadInputError, match="is no whole Parquet file: Cut"):
        run("import_bill", "gpu1", bill)


@pytest.mark.peers
def test_parquet_says_the_same_and_our_own_export_is_a_bill(lab: Cluster, tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    header, *rows = cur(separate=False)
    table = pa.table({name: [row[at] for row in rows] for at, name in enumerate(header)})
    costs = table.column("line_item_unblended_cost").to_pylist()
    at_ = table.schema.get_field_index("line_item_unblended_cost")
    table = table.set_column(at_, "line_item_unblended_cost", pa.array([float(cost) for cost in costs]))
    pq.write_table(table, tmp_path / "cur.parquet")
    answer = run("import_bill", "gpu1", tmp_path / "cur.parquet", "--preview")
    assert [bill["amount"] for bill in answer["bills"]] == ["20.5000000001"]

    close("2026-04")  # the provider's own ClusterTab bills 5,760.00 for April
    for extension in ("csv", "parquet"):
        file = tmp_path / f"focus.{extension}"
        run("export_focus", "2026-04", file, *(("--format", "parquet") if extension == "parquet" else ()))
        answer = run("import_bill", "gpu1", file, "--preview")
        assert [bill["amount"] for bill in answer["bills"]] == ["5760"]


def test_op_previews_and_imports_on_a_page(lab: Cluster, tmp_path: Path) -> None:
    month = {"ChargePeriodEnd": "2026-05-01T00:00:00Z"}
    bill = a_bill(tmp_path, charge(1, "2880", **month), charge(2, "7", SubAccountId="web"))
    op = signed_in(an_operator())

    def text(answer: Any) -> str:
        return words(answer.content.decode())

    def sends(act: str, where: str = "SubAccountId=gpu") -> str:
        with bill.open("rb") as file:
            fields = {"file": file, "where": where, "gpu_model": "", "act": act}
            return text(op.post("/operator/clusters/gpu1/bills/", fields, follow=True))

    assert "No bill yet." in text(op.get("/operator/clusters/gpu1/bills/"))
    assert "Preview, nothing imported: Rack & Co from 2026-04-01: $2,880.00 in 1 charge, 1 new" in sends(
        "preview"
    )
    assert not CostImport.objects.exists()
    assert "april.csv has no column 'Team' to select by." in sends("import", "Team=1")
    page = sends("import")
    assert "Left out: taxes 0, rows that were not selected 1." in page
    assert "Rack & Co acc-1 from 2026-04-01 the whole cluster SubAccountId=gpu 1 $2,880.00" in page
    assert margin() == ("2880", "2880")
