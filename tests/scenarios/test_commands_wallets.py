"""Wallets as Op sets them up in a file and looks at them by command."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from billing.models import Plan
from portal.ops.cli import BadInputError, RefusedError
from tests.builders import a_cluster, a_job, ingest

pytestmark = pytest.mark.django_db

PAGE = Path(__file__).parents[2] / "docs" / "explanation/wallets.md"
REST = """
[[cluster]]
name = "gpu1"
[[plan.price]]
meter = "gpu-hour"
where = { gpu_model = "rtx3090" }
unit_price = "1"
from = 2026-01-01
[[plan.price]]
meter = "gpu-hour"
where = { gpu_model = "a6000" }
unit_price = "4"
from = 2026-01-01
"""


def documented() -> str:
    """The file of the page, with the prices that it leaves out and an account."""
    text = PAGE.read_text().split("```")[1]
    plan, tenant = text.split("[[tenant]]")
    owned = 'plan = "tokens"\naccounts = [{ cluster = "gpu1", account = "vision" }]'
    return plan + REST + "[[tenant]]" + tenant.replace('plan = "tokens"', owned)


def applied(tmp_path: Path, text: str) -> dict[str, Any]:
    file = tmp_path / "lab.toml"
    file.write_text(text)
    return answer_of("apply", str(file))


def answer_of(*words: str) -> dict[str, Any]:
    out = io.StringIO()
    call_command(*words, "--json", stdout=out)
    answer: dict[str, Any] = json.loads(out.getvalue())
    return answer


def test_the_documented_file_makes_the_bucket_of_the_worked_example(tmp_path: Path) -> None:
    applied(tmp_path, documented())
    cluster = a_cluster()
    for hours, gpus, model in ((5, 8, "rtx2080"), (10, 4, "rtx3090"), (3, 2, "a6000")):
        ended = f"2026-03-02 {10 + hours}:00"
        ingest(cluster, a_job(gpus=gpus, gpu_model=model, started="2026-03-02 10:00", ended=ended))
    (wallet,) = answer_of("show_wallets", "--tenant", "robotics")["wallets"]
    assert (wallet["owner"], wallet["unit"], wallet["used"]) == ("ben", "TOK", "84.000000")
    spent = PAGE.read_text().split("Total: ")[1].split(" tokens")[0]
    assert spent == "84"


def test_the_same_file_again_changes_nothing(tmp_path: Path) -> None:
    assert applied(tmp_path, documented())["changed"]
    assert not applied(tmp_path, documented())["changed"]


def test_what_pays_a_plan_stays_where_the_file_does_not_say_it(tmp_path: Path) -> None:
    unsaid = documented().replace('settles = "wallet"\n', "")
    assert unsaid != documented()
    with pytest.raises(RefusedError, match='a plan in TOK has settles = "wallet"'):
        applied(tmp_path, unsaid)
    applied(tmp_path, documented())
    assert not applied(tmp_path, unsaid)["changed"]
    ingest(a_cluster(), a_job(gpu_model="rtx3090"))
    assert not applied(tmp_path, unsaid)["changed"]
    assert Plan.objects.get().settles == "wallet"


def test_what_changes_is_said_in_words(tmp_path: Path) -> None:
    applied(tmp_path, documented())
    changes = applied(tmp_path, documented().replace('overdraft = "10"', 'overdraft = "25"'))["changes"]
    assert changes == [
        {
            "what": "wallets of robotics in TOK",
            "field": "overdraft",
            "before": "10.000000",
            "after": "25.000000",
        }
    ]


def test_a_grant_that_has_given_keeps_its_terms(tmp_path: Path) -> None:
    applied(tmp_path, documented())
    ingest(a_cluster(), a_job(gpu_model="rtx3090"))
    answer_of("show_wallets")
    with pytest.raises(RefusedError, match="'monthly' has given already, so it can only be ended"):
        applied(tmp_path, documented().replace('amount = "30"', 'amount = "40"'))


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (('settles = "wallet"', 'settles = "invoice"'), 'a plan in TOK has settles = "wallet"'),
        (('for = "user"', 'for = "person"'), "for is 'person'; allowed: tenant, project, user."),
        (('unit = "TOK"', 'unit = "tokens"'), "it is no unit of a wallet"),
        (('amount = "30"', 'amount = "0"'), "amount is nothing; a grant gives more than that."),
        (('overdraft = "10"', 'overdraft = "-1"'), "overdraft is -1; it is from 0"),
    ],
)
def test_mistakes_are_sentences(tmp_path: Path, wrong: tuple[str, str], sentence: str) -> None:
    with pytest.raises(RefusedError) as refused:
        applied(tmp_path, documented().replace(*wrong))
    assert sentence in str(refused.value)


def test_credit_is_given_once_per_reference(tmp_path: Path) -> None:
    empty = re.sub(r"grants = \[.*?\n\]\n", "", documented(), flags=re.DOTALL)
    applied(tmp_path, empty.replace('for = "user"', 'for = "tenant"'))
    command = ("grant_credit", "robotics", "250", "--reference", "TRX 17", "--top-up")
    assert answer_of(*command)["balance"] == "250.000000"
    assert answer_of(*command)["balance"] == "250.000000"
    with pytest.raises(RefusedError, match="'TRX 17' was granted before with another amount"):
        answer_of("grant_credit", "robotics", "25", "--reference", "TRX 17")


def test_a_wallet_that_is_not_there_is_said(tmp_path: Path) -> None:
    applied(tmp_path, documented())
    with pytest.raises(BadInputError, match="'robotics' has no such wallet"):
        answer_of("grant_credit", "robotics", "1", "--reference", "x", "--user", "zoe")
