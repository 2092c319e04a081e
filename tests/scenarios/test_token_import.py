"""The way in from GPU_token_manager: balances and blocked users as that program writes them; and example B, whole."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from billing.admission.check import check_job
from billing.admission.reserve import reserve_job
from billing.models import Quota, Wallet, WalletEntry
from billing.quotas import review
from billing.quotas.token_files import TokenFileError, read_blocked
from billing.quotas.token_import import TokenImport, import_tokens
from billing.wallets import booking, grants
from portal.core.tenants.models import Tenant
from portal.ops.cli import RefusedError
from portal.sentences import sentence
from tests.builders import a_cluster, a_job, an_operator, at, ingest
from tests.scenarios.test_commands_wallets import PAGE, answer_of, applied, documented
from tests.web.house import signed_in
from tests.web.test_operator_acts import do, preview
from tests.web.test_overview import words

pytestmark = pytest.mark.django_db

NOW = at("2026-03-01 00:00")
# As the program writes them: floats of any length, the poorest first, and a list of names.
BALANCES = (
    b'{"zoe": {"token_balance": -7.25}, "ben": {"token_balance": 43.333333333333336}, '
    b'"ann": {"token_balance": 100}}'
)
BLOCKED = b'["zoe", "max"]'


@pytest.fixture
def robotics(tmp_path: Path) -> Tenant:
    applied(tmp_path, documented())
    return Tenant.objects.get(slug="robotics")


def brought_over(tenant: Tenant, moment: Any = NOW, **files: bytes) -> TokenImport:
    return import_tokens(
        tenant=tenant,
        balances=files.get("balances"),
        blocked=files.get("blocked"),
        by="op",
        moment=moment,
        preview=bool(files.get("preview")),
    )


def balances() -> dict[str, str]:
    return {row["owner"]: row["balance"] for row in answer_of("show_wallets")["wallets"]}


def reasons(done: TokenImport) -> dict[str, str]:
    return {one.user: sentence(one.error) for one in done.left_out}


def test_example_b_comes_out_at_46_at_the_end_of_the_month(tmp_path: Path) -> None:
    """Ben's 84 tokens are used in March; 100 at the beginning and 30 for the month."""
    applied(tmp_path, documented())
    cluster = a_cluster()
    for hours, gpus, model in ((5, 8, "rtx2080"), (10, 4, "rtx3090"), (3, 2, "a6000")):
        ended = f"2026-03-02 {10 + hours}:00"
        ingest(cluster, a_job(gpus=gpus, gpu_model=model, started="2026-03-02 10:00", ended=ended))
    for moment in (at("2026-03-02 23:00"), at("2026-03-31 23:59")):
        booking.book_due(moment=moment)
        grants.tend(moment=moment)
    (wallet,) = Wallet.objects.all()
    assert wallet.balance == 46_000_000
    assert "46 remain at the end of the month" in PAGE.read_text()


def test_a_debt_is_never_forgiven_heals_by_a_token_a_day_and_admits_nothing_beyond_the_overdraft(
    tmp_path: Path,
) -> None:
    """The program lets no balance be below -10; here 180 of debt are 180, and what is asked for is refused."""
    daily = documented().replace(
        '{ name = "monthly", amount = "30", every = "month" }',
        '{ name = "daily", amount = "1", every = "day" }',
    )
    assert daily != documented()
    applied(tmp_path, daily)
    cluster, robotics = a_cluster(), Tenant.objects.get(slug="robotics")
    ingest(cluster, a_job(gpus=28, gpu_model="rtx3090", started="2026-03-01 00:00", ended="2026-03-01 10:00"))
    booking.book_due(moment=at("2026-03-01 12:00"))
    wallet = Wallet.objects.get()
    assert wallet.balance == -179_000_000  # 100 + 1 - 280
    grants.tend(moment=at("2026-03-31 12:00"))
    wallet.refresh_from_db()
    assert wallet.balance == -149_000_000
    grants.grant(wallet=wallet, amount=144_000_000, key="G1", who="op", moment=at("2026-03-31 12:00"))
    now = at("2026-03-31 12:00")
    job = {"gpus": 1, "gpu_model": "rtx3090", "started": "2026-03-31 12:00"}
    for ended, fits in (("2026-03-31 17:00", True), ("2026-03-31 17:01", False)):  # 5 of the 10 are left
        fact = a_job(**job, ended=ended)
        assert check_job(tenant=robotics, cluster="gpu1", job=fact, now=now).may_run is fits
        placed = reserve_job(cluster=cluster, key=ended, job=fact, now=now)
        assert placed is not None
        assert (placed.reservation is not None) is fits


def test_balances_are_previewed_then_brought_over_once_whatever_is_used_since(robotics: Tenant) -> None:
    done = brought_over(robotics, balances=BALANCES, preview=b"yes")
    assert [(row.user, row.balance) for row in done.balances] == [
        ("ann", 100_000_000),
        ("ben", 43_333_333),
        ("zoe", -7_250_000),
    ]
    assert not Wallet.objects.exists()
    brought_over(robotics, balances=BALANCES)
    # Beside what the month gives; the 100 to begin with are in the balance of the file.
    assert {row.user: row.balance for row in Wallet.objects.all()} == {
        "ann": 130_000_000,
        "ben": 73_333_333,
        "zoe": 22_750_000,
    }
    ingest(
        a_cluster(), a_job(gpu_model="rtx3090", gpus=10, started="2026-03-02 10:00", ended="2026-03-02 11:00")
    )
    entries = WalletEntry.objects.count()
    done = brought_over(robotics, balances=BALANCES, moment=at("2026-03-03"))
    assert ([row.is_new for row in done.balances], WalletEntry.objects.count()) == ([False] * 3, entries)
    other = brought_over(robotics, balances=b'{"ben": {"token_balance": 44}}', moment=at("2026-03-03"))
    assert reasons(other) == {
        "ben": "Another balance was brought over before, 43.333333: correct it with grant_credit, or by what is used."
    }
    booking.book_due(moment=at("2026-03-03"))
    assert Wallet.objects.get(user="ben").balance == 63_333_333
    assert answer_of("prove")["holds"]


def test_who_cannot_be_taken_is_left_out_with_the_reason_and_nobody_else(robotics: Tenant) -> None:
    file = {
        "": {"token_balance": 1},
        "a\nb; rm -rf": {"token_balance": 1},
        "nan": {"token_balance": "NaN"},
        "yes": {"token_balance": True},
        "none": {},
        "list": [1],
        "huge": {"token_balance": 10**12},
        "poor": {"token_balance": -10.5},
        "edge": {"token_balance": -10},
    }
    done = brought_over(robotics, balances=json.dumps(file).encode())
    assert [row.user for row in done.balances] == ["edge"]
    refusals = reasons(done)
    assert refusals["poor"].startswith("-10.500000 is beyond the overdraft of 10.000000: raise the overdraft")
    assert refusals["a\nb; rm -rf"].startswith("It is no name of a user")
    assert {*refusals} == {*file} - {"edge"}
    assert [*Wallet.objects.values_list("user", flat=True)] == ["edge"]
    assert [one.user for one in read_blocked(b'[{"user": "ann"}, [7], 7]')[1]] == ["{…}", "[…]", "7"]
    # What a few characters say and no machine can write out.
    for number in (b"1e-99999999", b"0e99999999", b"-1e99999999"):
        content = b'{"ann": {"token_balance": %s}}' % number
        (left,) = reasons(brought_over(robotics, balances=content)).values()
        assert left.startswith("A token_balance is at most 1,000,000,000")
    assert brought_over(robotics, balances=b'{"ann": {"token_balance": 5e-324}}').balances[0].balance == 0


@pytest.mark.parametrize(
    ("files", "refusal"),
    [
        ({}, "Give users_tokens.json, black_house.json, or both."),
        ({"balances": b"{"}, "users_tokens.json is no JSON in UTF-8."),
        ({"balances": b'{"ben": {"token_balance": NaN}}'}, "users_tokens.json is no JSON in UTF-8."),
        ({"balances": b"[" * 100_000}, "users_tokens.json is no JSON in UTF-8."),
        ({"balances": BLOCKED}, "users_tokens.json has an object for each user"),
        ({"blocked": BALANCES}, "black_house.json is a list of users"),
        ({"balances": b'{"ben": {"token_balance": 1}, "ben": {}}'}, "'ben' is in users_tokens.json twice"),
        ({"balances": BALANCES + b" " * (4 << 20)}, "users_tokens.json has at most 4 MiB."),
        ({"blocked": BLOCKED}, "The wallets of robotics say nothing of a debt"),
    ],
)
def test_a_file_that_is_something_else_is_refused_whole(
    robotics: Tenant, files: dict[str, bytes], refusal: str
) -> None:
    with pytest.raises(TokenFileError) as refused:
        brought_over(robotics, **files)
    assert sentence(refused.value).startswith(refusal)
    assert not Wallet.objects.exists()


def test_blocked_users_stay_so_until_they_have_what_ends_a_debt(tmp_path: Path) -> None:
    """The file of the page has `debt`; by command, as an operator does it."""
    debt = 'overdraft = "10"\ndebt = { action = "hold-jobs", free_at = "30", watch = false }'
    monthly = '  { name = "monthly", amount = "30", every = "month" },\n'
    text = documented().replace('overdraft = "10"', debt).replace(monthly, "")
    changed = applied(tmp_path, text)["changes"]
    assert "debt of robotics in TOK" in {change["what"] for change in changed}
    tokens, blocked = tmp_path / "users_tokens.json", tmp_path / "black_house.json"
    tokens.write_bytes(BALANCES.replace(b"43.333333333333336", b"-2"))
    blocked.write_bytes(b'["zoe", "ben", "ann", "max", "zoe"]')
    with pytest.raises(SystemExit, match="1"):
        answer_of("import_tokens", "robotics", "--balances", str(tokens), "--blocked", str(blocked))
    assert {row.user for row in Quota.objects.in_force()} == {"zoe", "ben"}  # ann has 100, and max no wallet
    with pytest.raises(RefusedError, match="There is no tenant"):
        answer_of("import_tokens", "nobody")
    grants.grant(
        wallet=Wallet.objects.get(user="ben"), amount=32_000_000, key="G", who="op", moment=at("2026-03-02")
    )
    review.review_quotas(moment=at("2026-03-02") + timedelta(minutes=1))
    assert {row.user for row in Quota.objects.in_force()} == {"zoe"}


def test_an_operator_pastes_both_files_sees_who_gets_what_and_confirms(robotics: Tenant) -> None:
    op = signed_in(an_operator())
    path = "/operator/tenants/robotics/tokens/"
    assert path in op.get("/operator/tenants/robotics/").content.decode()
    text = words(preview(op, path, balances=BALANCES.decode().replace("100", '"all"')))
    assert "2 balances brought over, 0 as before, 0 blocked, 1 left out." in text
    assert "Left out, 'ann': It has no token_balance that is a number." in text
    assert not Wallet.objects.exists()
    text = do(op, path, balances=BALANCES.decode(), why="switch-over")
    assert "3 balances brought over" in text
    assert Wallet.objects.count() == 3
    assert "black_house.json is a list of users" in words(preview(op, path, blocked="{}"))
    assert Client().get(path).status_code in (302, 404)
