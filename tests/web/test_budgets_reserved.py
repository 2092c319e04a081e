"""The page of budgets says what is reserved: used, reserved and left are 100 %, and what lapsed is told. Case 49."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from billing.admission import follow
from billing.models import QuotaAction, QuotaEvery, QuotaMeasure
from billing.quotas import quotas, review
from billing.quotas.quotas import Setter
from billing.quotas.terms import QuotaTerms
from tests.scenarios.test_reservations import reserve
from tests.web.house import House, a_house, page, signed_in
from tests.web.test_overview import words

pytestmark = pytest.mark.django_db
PATH = "/t/vision-lab/budgets/"


@pytest.fixture
def house() -> House:
    return a_house(close=False)


def test_quota_049_the_page_shows_used_reserved_and_left_and_what_no_job_came_for(house: House) -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    terms = QuotaTerms(
        measure=QuotaMeasure.GPU_HOURS,
        amount=Decimal(300),
        every=QuotaEvery.ROLLING,
        hours=24,
        action=QuotaAction.NO_GPU_JOBS,
    )
    quotas.set_quota(tenant=house.vision, name="daily", terms=terms, by=Setter.OWNER, moment=now)
    assert "Reservations" not in words(page(house.ann, PATH))
    reserve(house.cluster, 10, 10, "a", now=now, job_id="4711")
    reserve(house.cluster, 1, 1, "b", now=now)

    text = words(page(house.ann, PATH))

    assert "0 GPU-hours 0 % 300 GPU-hours 101 GPU-hours 33.7 % 199 GPU-hours 66.3 %" in text
    assert "4711 vision gpu1 10 10:00:00 10:00:00 daily with the job" in text
    check = {"gpus": "20", "hours": "10", "gpu_model": "a100"}
    answer = words(signed_in(house.ann).get(f"{PATH}check/", check).content.decode())
    assert "0 GPU-hours of 300 GPU-hours used, 101 GPU-hours reserved, 199 GPU-hours left" in answer
    assert "4711" not in page(house.eve, "/t/speech-lab/budgets/")

    follow.follow_reservations(moment=now + timedelta(minutes=15))
    review.review_quotas(moment=now)
    text = words(page(house.ann, PATH))
    assert "Account vision on gpu1, reserved" in text
    assert "no job came." in text
