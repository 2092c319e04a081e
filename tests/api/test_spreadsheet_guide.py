"""The script of docs/how-to/cost-spreadsheet.md, run as it is printed. Case 15 of the API."""

from __future__ import annotations

import csv
import io
import re
import sys
import textwrap
from contextlib import redirect_stdout
from urllib import request as urllib_request

import pytest

from portal.env import ROOT
from tests import builders
from tests.api.door import BASE, Door, door
from tests.web.house import House

pytestmark = pytest.mark.django_db

GUIDE = ROOT / "docs" / "how-to" / "cost-spreadsheet.md"


def run(monkeypatch: pytest.MonkeyPatch, *days: str, secret: str) -> list[list[str]]:
    """What the script prints, in cells; the instance that it asks is this one."""

    def urlopen(request: urllib_request.Request) -> io.BytesIO:
        key = str(request.get_header("Authorization")).removeprefix("Bearer ")
        answer = Door(key).get(request.full_url.removeprefix(f"https://billing.example{BASE}"))
        assert answer.status == 200, answer.raw
        return io.BytesIO(answer.raw)

    (block,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    monkeypatch.setattr(urllib_request, "urlopen", urlopen)
    monkeypatch.setattr(sys, "argv", ["costs.py", *days])
    monkeypatch.setenv("URL", "https://billing.example")
    monkeypatch.setenv("KEY", secret)
    with redirect_stdout(io.StringIO()) as printed:
        exec(compile(textwrap.dedent(block), "costs.py", "exec"), {})
    return list(csv.reader(io.StringIO(printed.getvalue())))


def test_api_015_the_months_cost_by_project_goes_into_a_spreadsheet(
    house: House, ann: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    builders.own(house.vision, house.cluster, "=audio()")
    job = builders.a_job(account="=audio()", started="2026-04-02 10:00", ended="2026-04-02 10:20")
    builders.ingest(house.cluster, job)
    rows = run(monkeypatch, "2026-03-01", "2026-05-01", secret=ann.secret)
    assert rows == [
        ["month", "project", "gpu_hours", "cost", "currency"],
        ["2026-03-01", "vision", "6.50", "13.00", "USD"],
        ["2026-04-01", "'=audio()", "0.33", "0.67", "USD"],
    ]
    assert house.invoice.subtotal == 1300
    assert run(monkeypatch, "2025-03-01", "2025-04-01", secret=ann.secret) == rows[:1]


def test_api_015_a_key_of_the_smallest_scope_is_enough(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    ben = door(house.ben, house.vision, "usage:read")
    assert len(run(monkeypatch, "2026-03-01", "2026-04-01", secret=ben.secret)) == 2
