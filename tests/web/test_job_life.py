"""A job's page tells its life: how long it waited and ran, where it is cut, and how busy its GPUs were."""

from __future__ import annotations

import re

import pytest

from billing.models import RatedJob
from tests import builders
from tests.scenarios.reports import worked
from tests.web.house import a_house, page
from tests.web.test_overview import words

pytestmark = pytest.mark.django_db


def test_ben_sees_how_his_job_waited_ran_was_cut_and_worked() -> None:
    house = a_house(close=False)
    over = {"submitted": "2026-03-31 20:00", "eligible": "2026-03-31 21:00", "started": "2026-03-31 22:00"}
    builders.ingest(
        house.cluster,
        builders.a_job(job_id="40", gpus=2, ended="2026-04-01 02:00", time_limit=8 * 3600, **over),
        builders.a_job(job_id="41", started=None, ended=None, submitted="2026-04-10", state="PENDING"),
        builders.a_job(job_id="42", started="2026-04-01", ended="2026-04-11", account="shared"),
    )
    worked("40", "2026-03-31 22:00", "3600", covered=7200)
    worked("40", "2026-04-01 00:00", "7200", covered=7200)
    text = words(html := page(house.ben, f"/t/vision-lab/jobs/{house.record('40')}/"))
    for line in (
        "Waited 02:00:00 01:00:00 of it before it could start",
        "Ran 04:00:00 50 % of its time limit of 08:00:00",
        "Its cost is cut at: 1 Apr 2026, 00:00:00 (a new billing period)",
        "Worked 75 % of the time that telemetry covers, which is 50 % of the run.",
        "31 Mar 2026, 22:00 50 % 31 Mar 2026, 23:00 unknown 1 Apr 2026, 00:00 100 % 1 Apr 2026, 01:00 unknown",
    ):
        assert line in text, line
    bars = re.findall(
        r'<rect class="ct-part-(\w+)" x="([\d.]+)%" y="([\d.]+)" width="25%" height="([\d.]+)">', html
    )
    assert bars == [
        ("effective", "0", "24", "24"), ("unknown", "25", "0", "48"),
        ("effective", "50", "0", "48"), ("unknown", "75", "0", "48"),
    ]  # fmt: skip
    waiting = page(house.ben, f"/t/vision-lab/jobs/{house.record('41')}/")
    assert "Life of the job" not in waiting
    assert "GPU utilization" not in waiting

    # Of a run of ten days, 240 hours are 80 bars of three; and Eve's part of it is hers alone.
    builders.own(house.vision, house.cluster, "shared", until="2026-04-06")
    builders.own(house.speech, house.cluster, "shared", since="2026-04-06")
    for day, busy in (("2026-04-02", "3600"), ("2026-04-08", "900")):
        worked("42", f"{day} 10:00", busy)
    record = RatedJob.objects.get(job_id="42", tenant=house.vision).record_id
    own, hers = (
        page(person, f"/t/{slug}/jobs/{record}/")
        for person, slug in ((house.ann, "vision-lab"), (house.eve, "speech-lab"))
    )
    assert own.count("</title></rect>") == hers.count("</title></rect>") == 80
    assert "Worked 100 % of the time" in words(own)
    assert "Worked 25 % of the time" in words(hers)
