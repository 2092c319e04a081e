"""Ben asks what a job would cost before he submits it."""

from __future__ import annotations

import pytest

from tests import builders
from tests.terms import GRADUATED, a_version
from tests.web.house import a_house, page, signed_in
from tests.web.test_accrued import a_lab
from tests.web.test_overview import words

pytestmark = pytest.mark.django_db


def test_ben_reads_the_tier_that_his_job_falls_into() -> None:
    cluster, lab = a_lab(a_version(GRADUATED))
    builders.ingest(cluster, builders.a_job(gpus=95), as_of="2026-03-03")
    ben = builders.a_person("ben@vision.example", lab)
    text = words(page(ben, "/t/vision-lab/quote/?gpus=10&hours=1&at=2026-03-20T10:00"))
    assert "Estimated cost (before tax) $27.50" in text  # 5 hours at 3.00 are left, 5 are at 2.50
    assert "20 Mar 2026, 10:00 – 20 Mar 2026, 11:00, account robots." in text
    assert "Computed from the usage up to 3 Mar 2026, 00:00." in text
    assert (
        "GPU time graduated: up to 100 at $3.00, up to 500 at $2.50, above at $2.00 10.00 GPU-hours" in text
    )


def test_the_form_begins_with_what_ran_last() -> None:
    html = page(a_house(close=False).ben, "/t/vision-lab/quote/")
    assert '<option value="a100" selected>a100</option>' in html
    assert "It adds to the invoice" not in html


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("hours=x", "'x' is no length of a job: write its hours as a number above 0, up to 8,784."),
        ("hours=1e-1", "'1e-1' is no length of a job: write its hours as a number above 0, up to 8,784."),
        (
            "hours=1e-999999999",
            "'1e-999999999' is no length of a job: write its hours as a number above 0, up to 8,784.",
        ),
        (
            "hours=1&gpus=1e-999999999",
            "'1e-999999999' is no number of GPUs: write one from 0 to 100,000.",
        ),
        ("hours=1&cpus=0e999999999", "'0e999999999' is no number of CPU cores: write one from 0"),
        ("hours=1&memory_gib=1e-999999999", "'1e-999999999' is no number of GiB of memory: write one from 0"),
        ("hours=NaN", "'NaN' is no length of a job: write its hours as a number above 0, up to 8,784."),
        ("hours=1_0", "'1_0' is no length of a job: write its hours as a number above 0, up to 8,784."),
        ("hours=1&cluster=nowhere", "does not own any account on 'nowhere' at that time."),
        ("hours=1&account=speech", "does not own the account 'speech'"),
        ("hours=1&at=soon", "'soon' is not a moment"),
        ("hours=1&at=9900-01-01T00:00", "what holds later is not known yet."),
        (
            "hours=8784&at=9999-12-31T12:00",
            "9999-12-31T12:00 is too late: there are days up to the year 9998.",
        ),
        (
            "hours=1&at=0001-01-01T00:00%2B09:00",
            "0001-01-01T00:00+09:00 is too early: there are days from 1970",
        ),
        ("hours=1&at=9999-12-31T23:00-10:00", "9999-12-31T23:00-10:00 is too late"),
        ("hours=1&at=1971-01-01T00:00", "nothing is known of before."),
        ("hours=1&gpus=1&gpu_model=mi300x", "No price covers 1.00 gpu-hours"),
        ("hours=1&gpus=0", "(before tax) Nothing"),
    ],
)
def test_what_cannot_be_quoted_is_said(query: str, sentence: str) -> None:
    assert sentence in words(page(a_house(close=False).ben, f"/t/vision-lab/quote/?{query}"))


def test_eve_finds_no_such_page() -> None:
    assert signed_in(a_house(close=False).eve).get("/t/vision-lab/quote/?hours=1").status_code == 404
