"""A client of Python that is generated from the committed schema works without a line by hand. Case 15 of the API.

The generator and what its client needs are installed in an environment of their own, so that they are in no lock.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from billing.models import Invoice
from clusters.models import Cluster, UsageRecord
from portal.core.tenants import ownership
from portal.env import ROOT
from tests.api.door import a_key
from tests.integration.web_process import WebProcess
from tests.web.house import House, a_house

pytestmark = pytest.mark.usefixtures("transactional_db")

GENERATOR = "openapi-python-client==0.29.1"
BINARY = ("application/pdf", "application/zip", "application/xml", "application/vnd.apache.parquet")
FILES = {"content_type_overrides": dict.fromkeys(BINARY, "application/octet-stream")}
"""What the generator does not know to be files."""


def installed() -> Path:
    """The generator's environment; made once a machine."""
    home = Path(tempfile.gettempdir()) / f"clustertab-{GENERATOR.replace('==', '-')}-{os.getuid()}"
    if not (home / "bin" / "openapi-python-client").exists():
        shutil.rmtree(home, ignore_errors=True)
        steps: list[list[str | Path]] = [
            [sys.executable, "-m", "venv", home],
            [home / "bin" / "pip", "install", "-q", GENERATOR],
        ]
        for step in steps:
            done = subprocess.run(step, capture_output=True, text=True, timeout=600)
            if done.returncode != 0:
                shutil.rmtree(home, ignore_errors=True)
                pytest.fail(
                    f"The generated client was not tried: {GENERATOR} cannot be installed. {done.stderr[-2000:]}"
                )
    return home


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python that the client runs on; the client lies beside this file's name in its folder."""
    home, folder = installed(), tmp_path_factory.mktemp("generated")
    config = folder / "config.json"
    config.write_text(json.dumps(FILES))
    done = subprocess.run(
        [
            *(home / "bin" / "openapi-python-client", "generate", "--meta", "none", "--fail-on-warning"),
            *("--path", ROOT / "docs" / "reference" / "openapi.json", "--config", config),
            *("--output-path", folder / "clustertab"),
        ],
        capture_output=True, text=True, timeout=300,
        env=os.environ | {"PATH": f"{home / 'bin'}:{os.environ['PATH']}"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture
def house(transactional_db: None) -> House:
    return a_house()


@pytest.fixture
def web(house: House, database_url: str, tmp_path: Path) -> Iterator[WebProcess]:
    with WebProcess(database_url, tmp_path) as process:
        yield process


def runs(client: Path, web: WebProcess, secret: str, code: str) -> Any:
    """What the script prints, as JSON."""
    begin = (
        "import json, os\n"
        "from clustertab.client import AuthenticatedClient\n"
        "client = AuthenticatedClient(base_url=os.environ['URL'], token=os.environ['KEY'],\n"
        "                             raise_on_unexpected_status=True)\n"
    )
    done = subprocess.run(
        [installed() / "bin" / "python", "-c", begin + code],
        env={"URL": web.url, "KEY": secret, "PYTHONPATH": str(client)},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


READ_INVOICES = """
from clustertab.api.invoices import get_invoices_jobs_csv, get_one_invoices, list_invoices
from clustertab.types import UNSET
invoices, cursor, pages = [], UNSET, 0
while cursor is not None:
    page = list_invoices.sync(client=client, limit=1, cursor=cursor)
    invoices += page.data
    cursor, pages = page.next_, pages + 1
one = get_one_invoices.sync(name=invoices[0].number, client=client)
missing = get_one_invoices.sync(name="INV-0", client=client)
jobs = get_invoices_jobs_csv.sync(name=one.number, client=client)
print(json.dumps({
    "pages": pages,
    "totals": {invoice.number: [invoice.total.amount, invoice.total.currency] for invoice in invoices},
    "one": one.to_dict(),
    "missing": [missing.status, missing.type_],
    "jobs": jobs.splitlines()[0].split(","),
}))
"""


def test_api_015_a_generated_client_reads_invoices_to_the_last_page(
    client: Path, house: House, web: WebProcess
) -> None:
    printed = runs(client, web, a_key(house.op, None).secret, READ_INVOICES)
    issued = Invoice.objects.exclude(number=None)
    invoices = {
        invoice.number: [f"{invoice.total // 100}.{invoice.total % 100:02d}", "USD"] for invoice in issued
    }
    assert printed["totals"] == invoices
    assert printed["pages"] == len(invoices) > 1
    assert printed["one"]["number"] in invoices
    assert printed["missing"] == [404, "urn:clustertab:problem:not-found"]
    assert "account" in printed["jobs"]


PUSH = """
import datetime
from clustertab.api.usage_events import create_usage_events
from clustertab.models import Problem, Pushed, SpecversionEnum, UsageEvent, UsageEventData, UsageEventTypeEnum
def event(number, **data):
    shape = {"account": "vision", "user": "ben", "gpus": 2, "gpu_model": "a100",
             "started": "2026-04-02T10:00:00Z", "ended": "2026-04-02T11:00:00Z"}
    return UsageEvent(
        specversion=SpecversionEnum.VALUE_0, id=str(number), source="own",
        type_=UsageEventTypeEnum.ORG_CLUSTERTAB_USAGE_RUN,
        time=datetime.datetime(2026, 4, 2, 12, tzinfo=datetime.timezone.utc),
        data=UsageEventData.from_dict({**shape, **data}),
    )
push = lambda body: create_usage_events.sync(client=client, cluster="own", body=body)
many = push([event(1), event(2), event(3, gpus=-1)])
one = push([event(1)])
none = push([event(4, gpus=-1)])
assert isinstance(many, Pushed) and isinstance(one, Pushed) and isinstance(none, Problem)
print(json.dumps({
    "many": [result.status.value for result in many.results],
    "why": many.results[2].errors[0].pointer,
    "one": [result.status.value for result in one.results],
    "none": [none.status, none.additional_properties["results"][0]["status"]],
}))
"""


def test_api_015_a_generated_client_pushes_usage(client: Path, house: House, web: WebProcess) -> None:
    cluster = Cluster.objects.create(name="own", kind="push")
    ownership.assign(account=cluster.accounts.create(name="vision"), tenant=house.vision)
    printed = runs(client, web, a_key(house.op, None, "usage:push").secret, PUSH)
    assert printed == {
        "many": ["accepted", "accepted", "rejected"],
        "why": "/data/gpus",
        "one": ["duplicate"],
        "none": [400, "rejected"],
    }
    assert UsageRecord.objects.filter(cluster=cluster).count() == 2
