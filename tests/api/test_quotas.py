"""Quotas by the API: the name is the address, and what is set has a tag."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from billing.limits import limits
from billing.models import LimitedAccount, Quota, QuotaEvery, QuotaMeasure
from billing.quotas import quotas, review
from billing.quotas.quotas import Setter
from billing.quotas.terms import QuotaTerms
from tests import builders
from tests.api.door import Door, door
from tests.web.house import House

pytestmark = pytest.mark.django_db
NOW = datetime.now(UTC)
BODY: dict[str, Any] = {
    "measure": "money",
    "amount": "20.00",
    "every": "term",
    "from": "2026-03-01",
    "until": "2026-04-01",
    "thresholds": ["50%", "18.00"],
}


def test_api_031_put_on_the_name_creates_replaces_and_delete_ends(ann: Door) -> None:
    made = ann.send("PUT", "/quotas/march", BODY)
    assert made.status == 200
    assert {name: made.body[name] for name in ("used", "left", "percent", "state", "unit", "from")} == {
        "used": "13.00",
        "left": "7.00",
        "percent": "65",
        "state": "near",
        "unit": "USD",
        "from": "2026-03-01",
    }
    assert ann.send("PUT", "/quotas/march", BODY).body == made.body
    lowered = ann.send("PUT", "/quotas/march", BODY | {"amount": "13.00"}).body
    assert (lowered["amount"], lowered["state"]) == ("13.00", "over")
    assert [row["name"] for row in ann.reads("/quotas")["data"]] == ["march"]
    assert ann.reads("/quotas/march")["thresholds"] == ["50%", "18"]
    assert [ann.send("DELETE", "/quotas/march").status for _ in range(2)] == [204, 404]


def test_quota_062_a_pool_and_whoever_borrows_from_it(ann: Door, house: House) -> None:
    project = house.vision.projects.get().name
    borrower = BODY | {"amount": "10.00", "project": project, "borrows_from": "shared"}
    assert ann.send("PUT", "/quotas/own", borrower).status == 409  # there is no pool yet
    assert ann.send("PUT", "/quotas/shared", BODY | {"amount": "5.00", "lends": True}).body["loans"] == []
    answer = ann.send("PUT", "/quotas/own", borrower).body
    assert {name: answer[name] for name in ("used", "borrows_from", "borrowed", "left", "state")} == {
        "used": "13.00",
        "borrows_from": "shared",
        "borrowed": "3.00",
        "left": "2.00",
        "state": "near",
    }
    pool = ann.reads("/quotas/shared")
    assert (pool["used"], pool["left"]) == ("3.00", "2.00")
    assert pool["loans"] == [{"quota": "own", "project": project, "used": "3.00", "reserved": "0.00"}]


def test_api_011_a_change_of_terms_that_are_gone_is_refused(ann: Door, house: House) -> None:
    assert ann.send("PUT", "/quotas/march", BODY, **{"If-Match": '"x"'}).problem == (412, "changed-meanwhile")
    tag = ann.send("PUT", "/quotas/march", BODY).headers["ETag"]
    builders.ingest(house.cluster, builders.a_job(started="2026-03-05 10:00", ended="2026-03-05 11:00"))
    assert ann.get("/quotas/march", **{"If-None-Match": tag}).body["used"] == "15.00"
    raised = ann.send("PUT", "/quotas/march", BODY | {"amount": "30"}, **{"If-Match": tag})
    assert (raised.status, raised.body["used"]) == (200, "15.00")
    assert ann.send("DELETE", "/quotas/march", **{"If-Match": tag}).problem == (412, "changed-meanwhile")


def test_quota_057_the_api_refuses_what_cannot_be_meant(ann: Door) -> None:
    wrong: list[tuple[dict[str, Any], int]] = [
        ({"amount": "-1"}, 409),
        ({"amount": "10.001"}, 409),
        ({"amount": "1e9"}, 400),
        ({"unit": "EUR"}, 409),
        ({"thresholds": ["101%"]}, 409),
        ({"every": "fortnight"}, 400),
        ({"color": "red"}, 400),
        ({"project": "nobody's"}, 404),
        ({"account": "nobody's"}, 409),
        ({"cluster": "nope"}, 409),
    ]
    for change, status in wrong:
        answer = ann.send("PUT", "/quotas/march", BODY | change)
        assert (answer.status, answer.problem[0]) == (status, status), answer.raw
    assert ann.send("PUT", "/quotas/Big%20One", BODY).problem == (409, "refused")
    assert not Quota.objects.exists()


def test_api_038_a_preview_keeps_nothing(ann: Door) -> None:
    assert ann.send("PUT", "/quotas/march?dry_run=true", BODY).body["used"] == "13.00"
    assert not Quota.objects.exists()


def test_quota_057_a_project_of_somebody_else_is_not_there(ann: Door, house: House) -> None:
    builders.own(house.speech, house.cluster, "secret", project="secret")
    theirs = ann.send("PUT", "/quotas/march", BODY | {"project": "secret"})
    nobodys = ann.send("PUT", "/quotas/march", BODY | {"project": "no-such"})
    assert (theirs.problem, nobodys.problem) == ((404, "not-found"), (404, "not-found"))


def test_quota_058_members_read_owners_set_and_operators_cap(ann: Door, op: Door, house: House) -> None:
    assert op.send("PUT", "/quotas/march?tenant=vision-lab", BODY | {"cap": "50.00"}).status == 200
    assert ann.send("PUT", "/quotas/march", BODY | {"amount": "50.00"}).status == 200
    beyond = ann.send("PUT", "/quotas/march", BODY | {"amount": "50.01"})
    assert (beyond.problem[0], beyond.body["code"]) == (409, "quota-above-cap")
    assert ann.send("DELETE", "/quotas/march").body["code"] == "quota-capped"
    ben = door(house.ben, house.vision)
    assert ben.reads("/quotas/march")["cap"] == "50.00"
    assert ben.send("PUT", "/quotas/march", BODY).problem == (403, "missing-scope")
    assert op.send("PUT", "/quotas/march", BODY).problem == (400, "invalid-request")  # of which tenant?
    assert op.send("DELETE", "/quotas/march?tenant=vision-lab").status == 204


def test_others_see_nothing_of_it(ann: Door, op: Door, house: House) -> None:
    ann.send("PUT", "/quotas/march", BODY)
    eve = door(house.eve, house.speech)
    assert eve.reads("/quotas")["data"] == []
    assert eve.get("/quotas/march").problem == (404, "not-found")
    assert eve.send("DELETE", "/quotas/march").problem == (404, "not-found")
    assert [row["tenant"] for row in op.reads("/quotas")["data"]] == ["vision-lab"]


def test_a_key_of_a_project_keeps_to_it(house: House) -> None:
    builders.own(house.vision, house.cluster, "nlp", project="nlp")
    nlp = house.vision.projects.get(name="nlp")
    quotas.set_quota(
        tenant=house.vision,
        name="all",
        terms=QuotaTerms(measure=QuotaMeasure.GPU_HOURS, amount=Decimal(10), every=QuotaEvery.YEAR),
        by=Setter.OPERATOR,
        moment=NOW,
    )
    key = door(house.ann, house.vision, project=nlp)
    assert key.reads("/quotas")["data"] == []
    assert key.get("/quotas/all").problem == (404, "not-found")
    assert key.send("PUT", "/quotas/all", BODY | {"project": "nlp"}).problem == (404, "not-found")
    assert key.send("PUT", "/quotas/own", BODY).problem == (404, "not-found")
    others, nobodys = (
        key.send("PUT", "/quotas/own", BODY | {"project": "nlp", "account": account})
        for account in ("vision", "no-such")
    )
    assert (others.problem, others.body["detail"]) == ((404, "not-found"), nobodys.body["detail"])
    assert key.send("PUT", "/quotas/own", BODY | {"project": "nlp"}).status == 200
    whole = door(house.ann, house.vision)
    assert whole.send("PUT", "/quotas/shared", BODY | {"lends": True}).status == 200
    lends = BODY | {"project": "nlp", "borrows_from": "shared"}  # that is the tenant's, and its to lend
    assert key.send("PUT", "/quotas/own", lends).problem == (404, "not-found")
    assert whole.send("PUT", "/quotas/own", lends).status == 200
    assert key.send("PUT", "/quotas/own", lends | {"amount": "1.00"}).status == 200
    assert [row["name"] for row in key.reads("/quotas")["data"]] == ["own"]


JOB: dict[str, Any] = {"hours": "3", "gpus": 2, "gpu_model": "a100"}
YEAR: dict[str, Any] = {
    "measure": "gpu-hours",
    "amount": "10",
    "every": "rolling",
    "hours": 24,
    "action": "no-gpu-jobs",
}


def test_api_038_a_script_asks_whether_a_job_may_run(ann: Door, house: House) -> None:
    assert ann.writes("/quotas/check", JOB, status=200)["quotas"] == []
    ann.send("PUT", "/quotas/daily", YEAR)
    ben = door(house.ben, house.vision)
    said = ben.writes("/quotas/check", JOB, status=200)
    assert (said["may_run"], said["longest_seconds"], said["message"]) == (True, None, "This job may run.")
    said = ben.writes("/quotas/check", JOB | {"hours": "5.5"}, status=200)
    assert (said["may_run"], said["longest_seconds"], said["seconds"]) == (False, 5 * 3600, 19_800)
    (need,) = said["quotas"]
    assert need["type"] == "urn:clustertab:problem:quota-used-up-tenant"
    assert {name: need[name] for name in ("name", "left", "needs", "fits", "refuses", "ask")} == {
        "name": "daily", "left": "10", "needs": "11", "fits": False, "refuses": True, "ask": "an owner of Vision Lab",
    }  # fmt: skip


@pytest.mark.parametrize(
    "wrong",
    [
        {"hours": "0"},
        {"gpus": "1.5"},
        {"cluster": "moon"},
        {"account": "speech"},
        {"starts_at": "2026-03-01"},
    ],
)
def test_api_038_what_cannot_be_asked_is_a_sentence(ann: Door, wrong: dict[str, str]) -> None:
    assert ann.post("/quotas/check", JOB | wrong).problem == (400, "invalid-request")


def test_api_038_nobody_asks_for_somebody_else(ann: Door, op: Door, house: House) -> None:
    ann.send("PUT", "/quotas/daily", YEAR)
    eve = door(house.eve, house.speech)
    assert eve.post("/quotas/check?tenant=vision-lab", JOB).problem == (404, "not-found")
    assert eve.writes("/quotas/check", JOB, status=200)["quotas"] == []
    assert [
        need["name"] for need in op.writes("/quotas/check?tenant=vision-lab", JOB, status=200)["quotas"]
    ] == ["daily"]
    assert door(house.ann, house.vision, "jobs:read").post("/quotas/check", JOB).problem == (
        403,
        "missing-scope",
    )


def test_why_a_limit_could_not_be_set_is_for_operators(ann: Door, op: Door, house: House) -> None:
    """The sentence may name another tenant's account, or an address within."""
    moment = builders.at("2026-03-10")
    limits.set_limit(tenant=house.vision, name="once", terms=limits.LimitTerms(gpus=16), moment=moment)
    account = house.vision.ownerships.select_related("account").earliest("pk").account
    error = f"Below {account.name} lies secret of speech-lab, which a limit would hold, too."
    LimitedAccount.objects.create(
        tenant=house.vision, account=account, gpus={"": 16}, began_at=moment, next_at=moment, error=error,
        note="GrpTRES=gres/gpu is 32 and not our 16 any more.",
    )  # fmt: skip
    for path in ("/limits", "/limits/once"):
        body = ann.reads(path)
        (one,) = (body["data"][0] if "data" in body else body)["accounts"]
        assert (one["note"], one["error"]) == ("", "It could not be set yet, and is tried again.")
    assert op.reads("/limits?tenant=vision-lab")["data"][0]["accounts"][0]["error"] == error


def test_quota_009_periods_that_have_ended_are_read_by_what_is_known_now(ann: Door, house: House) -> None:
    monthly = {"measure": "money", "amount": "20.00", "every": "month"}
    assert ann.send("PUT", "/quotas/monthly", monthly).status == 200
    assert ann.reads("/quotas/monthly/periods") == {"periods": []}
    Quota.objects.update(counts_since=builders.at("2026-03-01"))
    review.review_quotas(moment=builders.at("2026-03-31 12:00"))
    (march,) = ann.reads("/quotas/monthly/periods")["periods"]
    assert march == {
        "start": "2026-03-01T00:00:00Z",
        "end": "2026-04-01T00:00:00Z",
        "amount": "20.00",
        "used": "13.00",
        "loans": [],
    }
    eve = door(house.eve, house.speech)
    assert eve.get("/quotas/monthly/periods").status == 404
