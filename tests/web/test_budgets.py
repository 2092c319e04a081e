"""Budgets on pages: owners set them, members read them, others see nothing, operators see who is near."""

from __future__ import annotations

from decimal import Decimal
from functools import partial
from urllib.parse import urlencode

import pytest

from billing.models import Quota, QuotaAction, QuotaBlock, QuotaBlockState, QuotaEvery, QuotaMeasure
from billing.quotas import blocks, quotas, review
from billing.quotas.quotas import Setter
from billing.quotas.terms import QuotaTerms
from clusters.enforcement_plan import LimitError, SchedulerPort
from clusters.models import Cluster
from portal.core.tenants.models import Tenant
from tests import builders, sharing
from tests.web.house import House, a_house, page, signed_in
from tests.web.test_overview import words

pytestmark = pytest.mark.django_db
PATH = "/t/vision-lab/budgets/"
MARCH = {
    "name": "march",
    "measure": "money",
    "amount": "20.00",
    "every": "term",
    "from": "2026-03-01",
    "until": "2026-04-01",
    "thresholds": "50%, 18.00",
}


begun, house = sharing.fixtures(partial(a_house, close=False), "house")


def save(house: House, **change: str) -> str:
    """What the page says after Ann has saved it."""
    client = signed_in(house.ann)
    response = client.post(PATH + "change/", MARCH | change | {"act": "save"}, follow=True)
    return words(response.content.decode())


def test_quota_015_the_form_says_what_a_budget_would_be_and_keeps_nothing(house: House) -> None:
    text = words(page(house.ann, f"{PATH}?{urlencode(MARCH | {'act': 'preview'})}"))
    assert (
        "Create budget march? Now $13.00 of $20.00 would be used 2026-03-01 to 2026-03-31 (everything)."
        in text
    )
    assert "Thresholds passed already: 50%. Nobody is notified of these." in text
    text = words(page(house.ann, f"{PATH}?{urlencode(MARCH | {'act': 'preview', 'amount': '13.00'})}"))
    assert "Thresholds passed already: 50%. All of it is used: one e-mail says so" in text
    assert not Quota.objects.exists()
    save(house)
    lower = urlencode(MARCH | {"act": "preview", "amount": "13.00"})
    text = words(page(house.ann, f"{PATH}?{lower}"))
    assert "So far the amount is $20.00; the new one holds at once." in text
    assert "Thresholds passed at this amount: 50%." in text


def test_ann_saves_edits_and_ends_a_budget(house: House) -> None:
    assert "Budget march is saved." in save(house)
    text = words(page(house.ann, PATH))
    assert "march everything, 2026-03-01 to 2026-03-31" in text
    assert "Threshold reached Only notifies $13.00 65 % $20.00 – $7.00" in text
    assert 'value="50%, 18"' in page(house.ann, PATH + "?edit=march")
    assert "Budget march is saved." in save(house, amount="13.00")
    assert "Used up Only notifies $13.00 100 % $13.00 – $0.00" in words(page(house.ann, PATH))
    question = words(page(house.ann, PATH + "?end=march"))
    assert "End budget march? Nobody is notified of it any more" in question
    assert "End budget" not in words(page(house.ben, PATH + "?end=march"))
    client = signed_in(house.ann)
    ended = client.post(PATH + "change/", {"name": "march", "act": "end"}, follow=True)
    assert "Budget march is ended." in words(ended.content.decode())
    assert "No budgets" in words(page(house.ann, PATH))


def test_ann_has_new_jobs_wait_once_it_is_used_and_an_edit_keeps_what_it_does(house: House) -> None:
    save(house, amount="10.00", action="no-gpu-jobs")
    moment = builders.at("2026-03-31 12:00")
    review.review_quotas(moment=moment)
    text = words(page(house.ann, PATH))
    assert "Used up No new GPU job starts Not blocked yet: vision" in text  # nothing was read back
    QuotaBlock.objects.update(state=QuotaBlockState.BLOCKED)
    blocked = words(page(house.ann, PATH))
    assert "No new GPU job starts Blocked: vision" in blocked
    assert "Raise its amount to let jobs go on." in blocked
    Tenant.objects.filter(pk=house.vision.pk).update(name="Vision Lab, Inc.")
    assert "Ask an owner of Vision Lab, Inc. to raise it." in words(page(house.carla, PATH))
    form = page(house.ann, PATH + "?edit=march")
    assert '<option value="no-gpu-jobs" selected>' in form
    save(house, amount="10.00", action="no-gpu-jobs", watch="yes")
    assert "No new GPU job starts (watched, nothing is stopped)" in words(page(house.ann, PATH))
    assert '<option value="yes" selected>' in page(house.ann, PATH + "?edit=march")
    assert "can only notify" in save(house, action="no-gpu-jobs", user="ben")


def test_a_name_of_nobody_is_refused_or_warned_of_before_ann_saves(house: House) -> None:
    def preview(**scope: str) -> str:
        return words(page(house.ann, f"{PATH}?{urlencode(MARCH | scope | {'act': 'preview'})}"))

    for scope in ({"account": "no-such"}, {"account": "speech"}, {"cluster": "nope"}):
        refused = preview(**scope)
        assert "Vision Lab has no account" in refused
        assert "Save budget" not in refused
        assert "Vision Lab has no account" in save(house, **scope)
    assert not Quota.objects.exists()
    warned = preview(user="nobody", queue="zz", qos="zz", gpu_model="a100")
    assert "So far no job of Vision Lab has run with: user nobody, queue zz, QOS zz." in warned
    assert "Save budget" in warned  # they may come
    assert "So far no job" not in preview(user="ben", account="vision", cluster="gpu1")


def test_rare_fields_are_folded_away_until_one_of_them_says_something(house: House) -> None:
    assert "<details><summary>More options" in page(house.ann, PATH)
    save(house, account="vision")
    assert "<details open><summary>More options" in page(house.ann, PATH + "?edit=march")


def test_operators_see_which_accounts_could_not_be_blocked_and_why(house: House) -> None:
    save(house, amount="10.00", action="no-gpu-jobs")
    moment = builders.at("2026-03-31 12:00")
    review.review_quotas(moment=moment)

    def none(cluster: Cluster) -> SchedulerPort:
        raise LimitError(f"{cluster} is fed by files.")

    blocks.enforce_blocks(moment=moment, opens=none)
    text = words(page(house.op, "/operator/budgets/"))
    assert "These accounts could not be blocked or unblocked yet" in text
    assert "gpu1 is fed by files." in text
    assert "is fed by files" not in page(house.ann, PATH)  # that is the operator's business


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"amount": "-1"}, "An amount is from 0 to"),
        ({"amount": "1e3"}, "Amount: '1e3' is no number. Write it like 500.00."),
        ({"amount": "", "name": ""}, "Name: This field is empty. Fill it in. Amount: This field is empty."),
        (
            {"user": "b" * 256, "every": "never"},
            "Choose one of those that are offered. User: It has 256 char",
        ),
        ({"carry_over": "101"}, "Carry over, percent: Write a whole number from 0 to 100."),
        ({"name": "Big One"}, "Name a quota by lower-case letters"),
        ({"thresholds": "101%"}, "give at most 100%, or for more than that an amount to repeat every"),
        ({"repeat_every": "0"}, "Repeat every: give an amount above zero"),
        ({"every": "month"}, "Only a fixed term has a first day and an end of its own"),
        ({"watch": "yes"}, "Only a quota that blocks can be tried first"),
        ({"from": "soon"}, "Write a day like 2026-03-01."),
        ({"every": "rolling", "from": "", "until": "", "hours": "many"}, "as a whole number"),
        ({"project": "nobody's"}, "has no project"),
        ({"recipients": "eve@speech.example"}, "is no member"),
    ],
)
def test_quota_057_the_form_refuses_with_a_sentence(
    house: House, change: dict[str, str], sentence: str
) -> None:
    assert sentence in words(page(house.ann, f"{PATH}?{urlencode(MARCH | change | {'act': 'preview'})}"))
    assert sentence in save(house, **change)
    assert not Quota.objects.exists()


def test_quota_058_members_read_and_cannot_change(house: House) -> None:
    save(house)
    text = page(house.ben, PATH)
    assert "$13.00" in text
    assert "Save" not in text
    assert "change/" not in text
    assert signed_in(house.ben).post(PATH + "change/", MARCH | {"act": "end"}).status_code == 404
    assert signed_in(house.eve).get(PATH).status_code == 404
    assert signed_in(house.eve).post(PATH + "change/", MARCH).status_code == 404
    assert Quota.objects.get().ended_at is None


def test_quota_058_an_owner_stays_below_the_cap(house: House) -> None:
    terms = QuotaTerms(
        measure=QuotaMeasure.MONEY,
        amount=Decimal(10),
        cap=Decimal(15),
        every=QuotaEvery.YEAR,
        thresholds=("50%",),
    )
    moment = builders.at("2026-03-10")
    quotas.set_quota(tenant=house.vision, name="year", terms=terms, by=Setter.OPERATOR, moment=moment)
    year = {"name": "year", "every": "year", "from": "", "until": "", "thresholds": "50%"}
    assert "lets you set this quota up to 15" in save(house, **year, amount="15.01")
    assert "Budget year is saved." in save(house, **year, amount="15.00")


def test_operators_see_which_budgets_are_near_or_over(house: House) -> None:
    assert "No budget has reached a threshold" in page(house.op, "/operator/budgets/")
    every: dict[str, object] = {"measure": QuotaMeasure.MONEY, "every": QuotaEvery.YEAR}
    moment = builders.at("2026-03-10")
    for tenant, amount in ((house.vision, "10"), (house.speech, "1000")):
        terms = QuotaTerms(amount=Decimal(amount), **every)  # type: ignore[arg-type]  # of the year
        quotas.set_quota(tenant=tenant, name="yearly", terms=terms, by=Setter.OPERATOR, moment=moment)
    review.review_quotas(moment=moment)
    text = words(page(house.op, "/operator/budgets/"))
    assert (
        "vision-lab/yearly everything, each year Used up Only notifies $13.00 130 % $10.00 – -$3.00" in text
    )
    assert "speech-lab/yearly" not in text
    assert signed_in(house.ann).get("/operator/budgets/").status_code == 404


def test_quota_063_ben_reads_on_the_page_whether_his_job_may_run(house: House) -> None:
    text = words(page(house.ben, PATH))
    assert "May a job run?" in text
    quotas.set_quota(
        tenant=house.vision,
        name="daily",
        terms=QuotaTerms(
            measure=QuotaMeasure.GPU_HOURS,
            amount=Decimal(10),
            every=QuotaEvery.ROLLING,
            hours=24,
            action=QuotaAction.NO_GPU_JOBS,
        ),
        by=Setter.OPERATOR,
        moment=builders.at("2026-03-01"),
    )
    asked, path = {"gpus": "4", "hours": "1", "gpu_model": "a100"}, f"{PATH}check/"
    assert path in page(house.ben, PATH)
    text = words(page(house.ben, f"{path}?{urlencode(asked)}"))
    assert "Yes This job may run." in text
    assert "Budgets that count the job: daily. Nothing is reserved" in text
    text = words(page(house.ben, f"{path}?{urlencode(asked | {'hours': '30'})}"))
    assert "No It may run with a time limit of 2:30:00." in text
    assert (
        "Budget daily (everything, any 24 hours): 0 GPU-hours of 10 GPU-hours used, 10 GPU-hours left; this job "
        "needs up to 96 GPU-hours. Ask an owner of Vision Lab to raise it."
    ) in text
    text = words(page(house.ben, f"{path}?{urlencode(asked | {'hours': 'x'})}"))
    assert "'x' is no length of a job" in text
    assert page(house.ben, f"{path}?{urlencode(asked | {'account': 'speech'})}").count("does not own") == 1


COUNTS = {
    "money": (
        {"name": "money"},
        "Counts what the invoice comes to so far, before tax: use, fees, and discounts",
    ),
    "net": (
        {"name": "net", "credits": "net"},
        "before tax, with corrections of earlier periods, less credit",
    ),
    "part": (
        {"name": "part", "user": "ben"},
        "Counts the cost of use before tax: of each invoice line its part",
    ),
    "hours": (
        {"name": "hours", "measure": "gpu-hours"},
        "Counts the GPU-hours that jobs held, free ones too",
    ),
    "credits": (
        {"name": "tokens", "measure": "credits"},
        "Counts what wallets are charged for use, before any grant.",
    ),
}


@pytest.mark.parametrize("what", COUNTS)
def test_quota_002_each_says_in_a_sentence_what_it_counts(house: House, what: str) -> None:
    change, sentence = COUNTS[what]
    save(house, **change)
    assert sentence in words(page(house.ann, PATH))
    assert sentence in words(page(house.ann, f"{PATH}at/{change['name']}/"))


def test_quota_006_parts_may_together_exceed_the_whole_and_the_page_says_so(house: House) -> None:
    save(house)
    for user in ("ben", "carla"):
        saved = save(house, name=user, user=user, amount="15.00")
        assert f"Budget {user} is saved." in saved
    assert "Usage of ben, carla also counts here. Together they may exceed this budget" in saved
    refused = save(house, name="more", user="dora", amount="20.01")
    assert "Budget more is saved." not in refused
    assert "20.01" in refused


def test_quota_009_a_period_that_has_ended_has_its_figure_on_the_budgets_page(house: House) -> None:
    save(house, name="monthly", every="month", until="", **{"from": ""})
    Quota.objects.update(counts_since=builders.at("2026-03-01"))
    review.review_quotas(moment=builders.at("2026-03-31 12:00"))
    text = words(page(house.ann, f"{PATH}at/monthly/"))
    assert "March 2026 Within budget $13.00 65 % $20.00" in text
    assert "what arrived late is in it, and nobody is notified of that." in text
    builders.ingest(
        house.cluster,
        builders.a_job(started="2026-03-20 10:00", ended="2026-03-20 14:00", gpus=1, account="vision"),
    )
    assert "March 2026 Within budget $13.00" not in words(page(house.ann, f"{PATH}at/monthly/"))
    assert "Budgets" in page(house.ben, f"{PATH}at/monthly/")
    for path, person in ((f"{PATH}at/monthly/", house.eve), (f"{PATH}at/yearly/", house.ann)):
        assert signed_in(person).get(path).status_code == 404
