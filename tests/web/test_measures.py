"""GPU memory and Slurm's billing weight on the pages of a job and of what runs."""

from __future__ import annotations

from datetime import date

import pytest

from billing.rating import engine
from tests import builders, sharing
from tests.web.house import House, a_house, page
from tests.web.test_live import running, shown, waiting
from tests.web.test_overview import words

pytestmark = pytest.mark.django_db

begun, house = sharing.fixtures(a_house, "house")


def weighed(house: House) -> None:
    """From April on, the vision lab pays by the weight, 0.10 an hour, and by GPU memory, 0.01 a GiB-hour."""
    prices: list[builders.PriceRow] = [
        ("billing-hour", {}, "0.10", date(2026, 4, 1)),
        ("gpu-memory-gib-hour", {}, "0.01", date(2026, 4, 1)),
    ]
    builders.a_plan(
        "vision-deal", prices=prices, charges=("gpu-memory", "billing"), effective_from=date(2026, 4, 1)
    )
    engine.rate_tenants([house.vision])


def test_a_job_shows_what_each_measure_of_it_cost(house: House) -> None:
    weighed(house)
    job = builders.a_job(
        job_id="61", billing=48, gpu_memory_mib=81_920, started="2026-05-06 10:00", ended="2026-05-06 12:00"
    )
    builders.ingest(house.cluster, job)

    text = words(page(house.ben, f"/t/vision-lab/jobs/{house.record('61')}/"))

    assert "GPU memory 80 GiB" in text
    assert "Slurm billing 48" in text
    assert "589,824,000 MiB-seconds ÷ 1,024 ÷ 3,600 × $0.01 = $1.60" in text
    assert "345,600 billing-seconds ÷ 3,600 × $0.10 = $9.60" in text


def test_a_running_job_costs_its_weight_by_the_hour(house: House) -> None:
    weighed(house)
    builders.ingest(house.cluster, running(billing=30, gpu_memory_mib=1024))
    assert "$3.01" in shown(house.ben)  # 30 × 0.10 and 1 GiB × 0.01


def test_a_job_that_waits_costs_what_slurm_says_that_it_will_weigh_or_is_not_told(house: House) -> None:
    weighed(house)
    builders.ingest(house.cluster, running(billing=30, cpu_milli=8000, memory_mib=1024))
    resources = "billing=50,cpu=16,gres/gpu:a100=2,gres/gpu=2,mem=64G,node=1"
    builders.ingest(house.cluster, waiting(requested=resources), waiting("52"))

    text = shown(house.ben)

    assert "04:00:00 $20.00 $5.00" in text  # four hours at 50 × 0.10
    assert "known once it runs" in text  # of 52 no weight is known


def test_a_tenant_that_is_not_charged_by_them_sees_no_cost_of_them(house: House) -> None:
    builders.ingest(house.cluster, builders.a_job(job_id="62", billing=48))

    text = words(page(house.ben, f"/t/vision-lab/jobs/{house.record('62')}/"))

    assert "Slurm billing 48" in text
    assert "billing-seconds" not in text
