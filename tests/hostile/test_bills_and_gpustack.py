"""Bills of rented machines and answers of GPUStack: whatever they say is read or refused in a sentence."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from billing.reports.bill_rows import BillError, BillFile
from clusters.connectors.base import ConnectorError, Secret
from clusters.connectors.gpustack.client import GpuStackClient
from clusters.connectors.gpustack.options import GpuStackOptions
from clusters.connectors.gpustack.rows import RowReader
from clusters.connectors.http import Endpoint
from tests.contracts.gpustack_reading import HOUR, METERS, TEN, USED
from tests.contracts.test_gpustack import an_item
from tests.hostile.mangling import INPUTS, Mangler
from tests.scenarios.test_bills import HEADER, charge, cur

CUR = io.StringIO()
csv.writer(CUR).writerows(cur())
BILLS = {
    "focus": (f"{HEADER}\n{charge(1, '5')}{charge(2, '7')}", {"Tags.a": "b"}),
    "aws": (CUR.getvalue(), {"resourceTags/user:cluster": "lab"}),
}


@pytest.mark.parametrize("kind", BILLS)
def test_a_bill_is_read_or_refused(kind: str, tmp_path: Path) -> None:
    text, selection = BILLS[kind]
    chance, path, refused = Mangler(18), tmp_path / "bill.csv", 0
    for number in range(INPUTS):
        path.write_bytes(chance.spoil(text.encode()))
        try:
            list(BillFile(path, selection if number % 2 else {}).rows())
        except BillError:
            refused += 1
    assert 0 < refused < INPUTS


def test_an_amount_that_no_number_of_python_holds_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bill.csv"
    path.write_text(f"{HEADER}\n{charge(1, '1e999999999999999999')}")
    with pytest.raises(BillError, match="which no bill has"):
        list(BillFile(path, {}).rows())


def test_an_answer_of_gpustack_is_read_or_refused() -> None:
    client = GpuStackClient(Endpoint(base_url="http://127.0.0.1:9"), Secret("key"), clock=lambda: 0)
    answer = {"items": [an_item(), an_item()], "pagination": {"total": 2}}
    chance, refused = Mangler(20), 0
    bodies = [b'{"items": [{"a": 1e99999999999999999999}], "pagination": {"total": 1}}']
    bodies += [
        chance.spoil_json(answer) if number % 3 else chance.spoil(json.dumps(answer).encode())
        for number in range(INPUTS)
    ]
    for body in bodies:
        try:
            items = client._listed("/usage", body)
            reader = RowReader(GpuStackOptions(**USED), METERS)
            list(reader.hours("instance", items, begin=TEN, end=TEN + HOUR))
        except ConnectorError:
            refused += 1
    assert 0 < refused < len(bodies)
