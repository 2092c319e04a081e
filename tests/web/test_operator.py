"""What Op looks after, and the sentence that mends it."""

from __future__ import annotations

import re

import pytest

from tests import builders, sharing
from tests.web.house import House, a_house, page
from tests.web.test_overview import words

pytestmark = pytest.mark.django_db

begun, house = sharing.fixtures(a_house, "house")

UNASSIGNED = "/operator/unassigned/"


def test_what_nobody_owns_is_listed_with_the_form_that_assigns_it(house: House) -> None:
    builders.ingest(
        house.cluster,
        builders.a_job(
            account="stray cats", gpus=4, cpu_milli=2500, started="2026-05-01 10:00", ended="2026-05-01 20:00"
        ),
    )
    shown = page(house.op, UNASSIGNED)
    text = words(shown)
    assert "stray cats gpu1 1 40.00 25.00 1 May 2026, 10:00 1 May 2026, 20:00" in text
    assert 'href="/operator/unassigned/assign/?cluster=gpu1&amp;account=stray+cats"' in shown
    builders.own(house.vision, house.cluster, "stray cats")
    assert "All usage is assigned" in page(house.op, UNASSIGNED)


def test_a_job_that_was_owned_in_part_is_unassigned_in_part(house: House) -> None:
    builders.own(house.vision, house.cluster, "lent", since="2026-05-02 00:00", until="2026-05-03 00:00")
    builders.ingest(
        house.cluster, builders.a_job(account="lent", started="2026-05-01 00:00", ended="2026-05-05 00:00")
    )
    shown = page(house.op, UNASSIGNED)
    assert "lent gpu1 1 72.00 0.00" in words(shown)  # 96 hours less the 24 that the vision lab had
    assert "account=lent&amp;until=2026-05-02T00%3A00%3A00Z" in shown
    assert "account=lent&amp;since=2026-05-03T00%3A00%3A00Z" in shown
    assert "Assign from 3 May 2026, 00:00" in words(shown)


def test_between_two_owners_only_the_gap_is_unassigned(house: House) -> None:
    builders.own(house.vision, house.cluster, "lent", until="2026-05-02 00:00")
    builders.own(house.speech, house.cluster, "lent", since="2026-05-04 00:00")
    builders.ingest(
        house.cluster,
        builders.a_job(
            account="lent", started="2026-05-01 00:00", ended="2026-05-05 00:00", gpu_share=(1, 7), gpus=7
        ),
    )
    shown = page(house.op, UNASSIGNED)
    assert "lent gpu1 1 48.00 0.00" in words(shown)
    assert "since=2026-05-02T00%3A00%3A00Z&amp;until=2026-05-04T00%3A00%3A00Z" in shown
    assert shown.count("unassigned/assign/") == 1


def test_a_suspended_job_is_unassigned_for_what_it_held(house: House) -> None:
    builders.own(house.vision, house.cluster, "lent", since="2026-05-01 05:00")
    builders.ingest(
        house.cluster,
        builders.a_job(
            account="lent", started="2026-05-01 00:00", ended="2026-05-01 10:00", suspended=18_000
        ),
    )
    assert "lent gpu1 1 2.50 0.00" in words(page(house.op, UNASSIGNED))  # half of the five hours that it held


def test_an_account_without_a_name_can_be_assigned_too(house: House) -> None:
    builders.ingest(house.cluster, builders.a_job(account=""))
    assert "unassigned/assign/?cluster=gpu1" in page(house.op, UNASSIGNED)


def test_clusters_show_how_far_they_are_read(house: House) -> None:
    builders.a_cluster("gpu2")
    text = words(page(house.op, "/operator/clusters/"))
    assert "gpu1 Accounting files UTC 20 Apr 2026, 00:00" in text
    assert "Done" in text
    assert "gpu2 Accounting files UTC no import yet no data – 0 0" in text


def test_quarantine_shows_each_row_with_its_reason(house: House) -> None:
    other = builders.a_cluster("gpu2")
    builders.ingest(house.cluster, builders.a_bad_row(raw="17|<b>vision", line=12))
    builders.ingest(other, builders.a_bad_row(raw="other", code="no-start"))
    everything = page(house.op, "/operator/quarantine/")
    text = words(everything)
    assert "a line break past mending. 17|<b>vision gpu1 test, line 12" in text
    assert "no-start The row has no start although the job ran. other gpu2" in text
    assert "2 rows" in text
    assert "<b>vision" not in everything
    for query, shown, total in (
        ("?cluster=gpu2", "The row has no start", "1 row"),
        ("?code=truncated", "The row has too few fields", "1 row"),
        ("?cluster=gpu2&code=truncated", "No quarantined rows", "0 rows"),
        ("?state=resolved", "No quarantined rows", "0 rows"),
    ):
        page_text = words(page(house.op, f"/operator/quarantine/{query}"))
        assert (query, shown in page_text, total in page_text) == (query, True, True)


def test_a_settled_row_moves_to_the_settled(house: House) -> None:
    fact = builders.a_job(job_id="17x")
    builders.ingest(house.cluster, builders.a_bad_row(source_key=fact.source_key))
    builders.ingest(house.cluster, fact)
    assert "No quarantined rows" in page(house.op, "/operator/quarantine/")
    assert "Resolved:" in words(page(house.op, "/operator/quarantine/?state=resolved"))


def test_a_long_quarantine_is_read_page_by_page(house: House) -> None:
    builders.ingest(house.cluster, *(builders.a_bad_row(raw=f"row-{n:03}") for n in range(60)))
    first = page(house.op, "/operator/quarantine/?cluster=gpu1")
    before = first.partition("before=")[2].partition('"')[0]
    second = page(house.op, f"/operator/quarantine/?cluster=gpu1&before={before}")
    shown = [set(re.findall(r"row-\d+", html)) for html in (first, second)]
    assert [len(rows) for rows in shown] == [50, 10]
    assert len(shown[0] | shown[1]) == 60
    assert "Older rows" not in second
