"""`deploy/mcp/`, installed as its users do and tried by the official client against a real web process.

What it needs is installed in an environment of its own, so that it is in no lock.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from portal.env import ROOT
from tests.api.door import a_key, door
from tests.builders import a_job, ingest
from tests.integration.web_process import WebProcess
from tests.web.house import House, a_house

pytestmark = pytest.mark.usefixtures("transactional_db")

SDK = "mcp==2.3.0"
PACKAGE = ROOT / "deploy" / "mcp"
TRY = """
import asyncio, json, os, sys
from mcp import Client, StdioServerParameters
async def main():
    environ = {name: os.environ[name] for name in ("CLUSTERTAB_URL", "CLUSTERTAB_KEY", "PYTHONPATH")}
    command = "import sys; from clustertab_mcp.server import main; main()"
    answers = []
    async with Client(StdioServerParameters(command=sys.executable, args=["-c", command], env=environ)) as client:
        tools = (await client.list_tools()).tools
        for name, arguments in json.load(sys.stdin):
            result = await client.call_tool(name, arguments)
            text = result.content[0].text
            answers.append({"error": text} if result.is_error else json.loads(text))
        hints = {tool.name: [tool.annotations.read_only_hint, bool(tool.description)] for tool in tools}
        print(json.dumps({"tools": hints, "answers": answers}))
asyncio.run(main())
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A Python with the SDK, made once a machine; and the folder that our package is installed in."""
    home = Path(tempfile.gettempdir()) / f"clustertab-{SDK.replace('==', '-')}-{os.getuid()}"
    folder = tmp_path_factory.mktemp("mcp")
    shutil.copytree(PACKAGE, folder / "source")
    pip: list[str | Path] = [home / "bin" / "pip", "install", "-q"]
    steps: list[list[str | Path]] = [
        [*pip, "--no-deps", "--no-build-isolation", "--target", folder / "installed", folder / "source"]
    ]
    if not (home / "complete").exists():
        shutil.rmtree(home, ignore_errors=True)
        steps = [[sys.executable, "-m", "venv", home], [*pip, SDK, "hatchling"], *steps]
    for step in steps:
        done = subprocess.run(step, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, f"The MCP server was not tried: {done.stderr[-2000:]}"
    (home / "complete").touch()
    return home / "bin" / "python", folder / "installed"


@pytest.fixture
def house(transactional_db: None) -> House:
    """With use in April, too, in two projects and of two models, on accounts of the vision lab."""
    house = a_house()
    for user, gpus, started, ended in (
        ("ben", 3, "2026-04-06 10:00", "2026-04-06 10:20"),
        ("ann", 1, "2026-04-07 10:00", "2026-04-07 17:00:01"),
        ("zoe", 7, "2026-04-08 10:00", "2026-04-08 10:00:07"),
    ):
        ingest(house.cluster, a_job(user=user, gpus=gpus, started=started, ended=ended))
    return house


@pytest.fixture
def web(house: House, database_url: str, tmp_path: Path) -> Iterator[WebProcess]:
    with WebProcess(database_url, tmp_path) as process:
        yield process


def answers_of(environment: tuple[Path, Path], url: str, key: str, *calls: tuple[str, dict[str, Any]]) -> Any:
    """The answers of the tools to these calls."""
    python, packages = environment
    done = subprocess.run(
        [python, "-c", TRY],
        env={"CLUSTERTAB_URL": url, "CLUSTERTAB_KEY": key, "PYTHONPATH": str(packages)},
        input=json.dumps(calls), capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert key not in done.stdout + done.stderr
    return json.loads(done.stdout)


def test_an_assistant_reads_what_a_tenant_spent_and_why(
    environment: tuple[Path, Path], house: House, web: WebProcess
) -> None:
    secret = a_key(house.ann, house.vision).secret
    ann = door(house.ann, house.vision)
    march, april = ("2026-03-01", "2026-04-01"), ("2026-04-01", "2026-05-01")
    number = house.invoice.number
    months = {
        "earlier_first_day": march[0],
        "earlier_to": march[1],
        "later_first_day": april[0],
        "later_to": april[1],
    }
    printed = answers_of(
        environment, web.url, secret,
        ("spend", {"first_day": march[0], "to": april[1], "group_by": ["user"]}),
        ("why_spend_changed", {**months, "group_by": ["user", "gpu_model"]}),
        ("forecast", {}),
        ("quote", {"hours": "1.5", "gpus": 2, "gpu_model": "a100"}),
        ("jobs", {"user": "ben", "limit": 1, "started_from": "2026-03-01T00:00:00Z"}),
        ("invoices", {}),
        ("explain_invoice", {"number": number}),
    )  # fmt: skip
    assert printed["tools"].keys() == {
        *("spend", "why_spend_changed", "forecast", "quote", "jobs", "job", "invoices", "explain_invoice")
    }
    assert {tuple(hints) for hints in printed["tools"].values()} == {(True, True)}
    spend, why, forecast, quote, jobs, invoices, explained = printed["answers"]
    assert spend == ann.reads("/usage?from=2026-03-01&to=2026-05-01&interval=month&group_by=user")
    (dollars,) = why["by_currency"]
    parts = sum(Decimal(part["amount"]["amount"]) for part in dollars["parts"])
    assert parts == Decimal(dollars["difference"]["amount"]) != 0
    assert Decimal(dollars["later"]["amount"]) - Decimal(dollars["earlier"]["amount"]) == parts
    assert {part["group"].get("user") for part in dollars["parts"]} >= {"ben", "ann", "zoe"}
    assert forecast.keys() == ann.reads("/forecast").keys()
    assert quote["total"] == [{"amount": "6.00", "currency": "USD"}]
    assert [job["user"] for job in jobs["data"]] == ["ben"]
    assert jobs["next"]
    assert number in {invoice["number"] for invoice in invoices["data"]}
    lines = sum(Decimal(line["amount"]["amount"]) for line in explained["lines"])
    assert str(lines) == explained["invoice"]["subtotal"]["amount"]
    (one,) = answers_of(environment, web.url, secret, ("job", {"job_id": jobs["data"][0]["id"]}))["answers"]
    assert one["pieces"]


def test_errors_are_said_in_words(environment: tuple[Path, Path], house: House, web: WebProcess) -> None:
    ann, ben = a_key(house.ann, house.vision).secret, a_key(house.ben, house.vision).secret
    eves = ("explain_invoice", {"number": house.invoice.number})
    backwards = ("spend", {"first_day": "2026-04-01", "to": "2026-03-01"})
    answers = [
        *answers_of(environment, web.url, ann, backwards, ("job", {"job_id": "job_zz"}))["answers"],
        *answers_of(environment, web.url, ben, ("invoices", {}))["answers"],
        *answers_of(environment, web.url, a_key(house.eve, house.speech).secret, eves)["answers"],
        *answers_of(environment, web.url, "ct_live_none", ("forecast", {}))["answers"],
        *answers_of(environment, "http://127.0.0.1:9", ann, ("forecast", {}))["answers"],
    ]
    for answer, words in zip(
        answers,
        (
            "from is not before to",
            "not there",
            "It needs the scope invoices:read",
            "not your tenant's",
            "key that is good",
            "does not answer",
        ),
        strict=True,
    ):
        assert words in answer["error"], answer
        assert "Traceback" not in answer["error"]


@pytest.mark.parametrize(
    ("url", "key", "words"),
    [
        ("", "k", "CLUSTERTAB_URL"),
        ("http://billing.example", "k", "https://"),
        ("https://billing.example", "", "CLUSTERTAB_KEY"),
    ],
)
def test_without_an_address_or_a_key_it_does_not_start(
    environment: tuple[Path, Path], url: str, key: str, words: str
) -> None:
    python, packages = environment
    done = subprocess.run(
        [python, packages / "bin" / "clustertab-mcp"],
        env={"CLUSTERTAB_URL": url, "CLUSTERTAB_KEY": key, "PYTHONPATH": str(packages)},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 1
    assert words in done.stderr
    assert "Traceback" not in done.stderr
