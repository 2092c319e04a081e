"""What runs and what waits, and what it costs while it does."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from clusters import open_runs
from clusters.connectors.base import UsageFact
from clusters.models import Cluster, UsageRecord
from portal.core.tenants.models import User
from portal.core.tenants.scope import tenant_scope
from tests import builders, sharing
from tests.web.house import House, a_house, page, signed_in
from tests.web.test_overview import words

pytestmark = pytest.mark.django_db

begun, house = sharing.fixtures(a_house, "house")

LIVE = "/t/vision-lab/live/"


def running(job_id: str = "41", **fields: Any) -> UsageFact:
    """Two GPUs since ten o'clock, seen until noon."""
    values: dict[str, Any] = {
        "started": "2026-05-06 10:00", "ended": None, "seen_until": "2026-05-06 12:00", "state": "RUNNING",
        "gpus": 2, "time_limit": 8 * 3600, **fields,
    }  # fmt: skip
    return builders.a_job(job_id=job_id, **values)


def waiting(job_id: str = "51", **fields: Any) -> UsageFact:
    """Asked for two GPUs at eleven; until it starts, it holds nothing."""
    values: dict[str, Any] = {
        "submitted": "2026-05-06 11:00", "started": None, "ended": None, "state": "PENDING", "gpus": 0,
        "gpu_model": "", "requested": "cpu=16,mem=64G,node=1,gres/gpu=2,gres/gpu:a100=2",
        "time_limit": 4 * 3600, **fields,
    }  # fmt: skip
    return builders.a_job(job_id=job_id, **values)


def shown(person: User, query: str = "") -> str:
    return words(page(person, LIVE + query))


def listed(person: User, query: str = "") -> list[str]:
    html = page(person, LIVE + query, **{"HX-Request": "true"})
    return re.findall(r'href="/t/vision-lab/jobs/\d+/">([^<]+)</a>', html)


def test_a_running_job_shows_what_it_costs_per_hour_and_at_its_limit(house: House) -> None:
    builders.ingest(house.cluster, running(name="train", queue="gpu", qos="high", cpu_milli=8000))
    text = shown(house.ben)
    assert "41 train ben vision gpu1 gpu · high 2 × a100 8 cores 6 May 2026, 10:00 for 02:00:00" in text
    assert "$4.00 $32.00 over since 6 May 2026, 18:00 $8.00" in text  # 2 GPUs × 8 hours × 2.00
    assert "Running 1 job 0 waiting" in text
    assert "GPUs in use 2 2 × a100" in text
    assert "Cost per hour $4.00" in text
    assert "gpu1 as of 6 May 2026, 12:00" in text


def test_a_waiting_job_shows_what_it_asked_for_and_what_its_like_was_charged(house: House) -> None:
    builders.ingest(house.cluster, running(cpu_milli=8000, memory_mib=1024), waiting())
    text = shown(house.ben)
    assert "51 ben vision gpu1 2 × a100 16 cores · 64 GiB 6 May 2026, 11:00 for 01:00:00 04:00:00" in text
    assert "04:00:00 $16.00 $4.00" in text


def test_a_waiting_job_unlike_any_that_ran_has_no_price_yet(house: House) -> None:
    builders.ingest(house.cluster, waiting(queue="never-used"), waiting("52", requested="gres/gpu:h200=8"))
    text = shown(house.ben)
    assert text.count("known once it runs") == 2
    assert "8 × h200" in text


def test_a_slice_that_is_waited_for_counts_what_it_counts_on_its_cluster(house: House) -> None:
    house.cluster.shares = {"a100": {"1g.10gb": "1/2"}}
    house.cluster.save()
    builders.ingest(house.cluster, running(), waiting(requested="node=1,gres/gpu:a100_1g.10gb=1"))
    assert "1 × 1g.10gb of a100" in (text := shown(house.ben))
    assert "known once it runs" in text  # nothing like it ran yet
    builders.ingest(house.cluster, running("40", gpus=1, mig_profile="1g.10gb", gpu_share=(1, 2)))
    assert "04:00:00 $4.00 $1.00" in shown(house.ben)  # half a GPU at 2.00 for four hours


def test_what_was_asked_for_in_words_that_are_not_understood_is_shown_as_it_came(house: House) -> None:
    builders.ingest(house.cluster, waiting(requested="two of the big ones"))
    assert "two of the big ones" in shown(house.ben)


def test_a_slice_counts_as_its_share(house: House) -> None:
    slices: dict[str, Any] = {"gpus": 3, "gpu_share": (1, 7), "mig_profile": "1g.5gb"}
    builders.ingest(house.cluster, running(**slices), running("42"))
    text = shown(house.ben)
    assert "3 × 1g.5gb of a100" in text
    assert "GPUs in use 2.43" in text
    assert "Cost per hour $4.86" in text  # 17/7 of 2.00: 4.857142…


def test_what_no_price_covers_is_said_and_not_counted(house: House) -> None:
    builders.ingest(house.cluster, running(), running("42", gpu_model="mi300x", gpus=4))
    text = shown(house.ben)
    assert "no price covers it – over since 6 May 2026, 18:00 Unpriced" in text
    assert "Cost per hour $4.00 without 1 job that no price covers" in text
    assert "GPUs in use 6" in text


def test_a_plan_that_waives_gpus_says_so(house: House) -> None:
    free = builders.a_plan(
        "cpu-only", charges=["cpu"], prices=[("cpu-core-hour", {}, "0.01", builders.LONG_AGO)]
    )
    lab = builders.a_tenant("free-lab", plan=free, accounts=[(house.cluster, "free")])
    flo = builders.a_person("flo@free.example", lab)
    builders.ingest(house.cluster, running(account="free"), running("42", account="free", cpu_milli=8000))
    text = words(page(flo, "/t/free-lab/live/"))
    assert "not charged by this plan – over since 6 May 2026, 18:00 Waived" in text
    assert "$0.08 $0.64 over since 6 May 2026, 18:00 $0.16" in text


def test_a_new_price_counts_from_its_day(house: House) -> None:
    version = house.vision.subscriptions.get().plan.versions.get()
    builders.a_plan(
        "vision-deal", prices=[("gpu-hour", {}, "3.00", builders.LONG_AGO)], effective_from=day("2026-05-06")
    )
    assert version.prices.count() == 1
    builders.ingest(house.cluster, running(started="2026-05-05 12:00"))
    text = shown(house.ben)
    assert (
        "$6.00 $120.00 over since 5 May 2026, 20:00 $120.00" in text
    )  # twelve hours at 2.00 and twelve at 3.00, two GPUs


def test_a_correction_does_not_count_twice(house: House) -> None:
    builders.ingest(house.cluster, running(gpus=4))
    builders.ingest(house.cluster, running(gpus=2))
    builders.ingest(house.cluster, running(gpus=2, seen_until="2026-05-06 13:00"))
    text = shown(house.ben)
    assert "GPUs in use 2 2 × a100" in text
    assert "Cost per hour $4.00" in text
    assert "$12.00 so far" in text


def test_a_run_that_the_last_pass_did_not_see_is_told_apart(house: House) -> None:
    builders.ingest(house.cluster, running(), running("42"))
    builders.ingest(house.cluster, running("42", seen_until="2026-05-06 15:00"))
    text = shown(house.ben)
    assert "1 job that ran or waited was not seen by the last sync of its cluster." in text
    assert "last seen 6 May 2026, 12:00" in text
    assert "Running 1 job" in text
    assert "GPUs in use 2 2 × a100" in text


def test_what_the_scheduler_no_longer_knows_neither_runs_nor_waits(house: House) -> None:
    builders.ingest(house.cluster, running(), running("42"), waiting(), waiting("52"))
    gone = UsageRecord.objects.filter(job_id__in=("42", "52")).values_list("source_key", flat=True)
    open_runs.settle(cluster=house.cluster, keys=gone, missing=gone, moment=builders.LATER)
    text = shown(house.ben)
    assert "2 jobs that ran or waited were not seen by the last sync of their cluster." in text
    assert "Running 1 job 1 waiting" in text
    assert "Cost per hour $4.00" in text
    assert text.count("not seen lately") == 2
    assert "not seen" not in words(page(house.eve, "/t/speech-lab/live/"))


def test_an_account_that_moved_accrues_to_its_new_owner_alone(house: House) -> None:
    builders.ingest(house.cluster, running())
    builders.own(house.speech, house.cluster, "vision", since="2026-05-06 11:00")
    builders.own(house.vision, house.cluster, "other")
    text = shown(house.ben)
    assert "nothing accrues to you – over since 6 May 2026, 18:00 $4.00" in text
    assert "Cost per hour – nothing accrues" in text
    eves = words(page(house.eve, "/t/speech-lab/live/"))
    assert "$2.50 $17.50 over since 6 May 2026, 18:00 $2.50" in eves
    assert "Cost per hour $2.50" in eves


def test_what_ended_is_not_live(house: House) -> None:
    builders.ingest(house.cluster, running())
    assert listed(house.ben) == ["41"]
    builders.ingest(house.cluster, running(ended="2026-05-06 12:30", seen_until=None, state="COMPLETED"))
    assert listed(house.ben) == []
    text = shown(house.ben)
    assert "Nothing runs and nothing waits" in text
    assert "gpu1 as of 6 May 2026, 12:30" in text


def test_spent_today_is_of_all_jobs_since_midnight(house: House) -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    midnight = now.replace(hour=0, minute=0, second=0)
    builders.ingest(
        house.cluster,
        builders.a_job(started=int(midnight.timestamp()) - 1800, ended=int(midnight.timestamp()) + 1),
    )
    assert "Spent today $0.000556 since midnight" in shown(house.ben)


def test_a_cluster_that_was_not_read_for_long_is_said_aloud(house: House) -> None:
    builders.ingest(house.cluster, running())
    assert "gpu1 has not been read for" in shown(house.ben)
    Cluster.objects.update(complete_through=datetime.now(UTC) - timedelta(minutes=5))
    assert "has not been read" not in shown(house.ben)
    builders.own(house.vision, builders.a_cluster("gpu2"), "vision")
    assert "gpu2 has not been read yet." in shown(house.ben)


def test_htmx_gets_the_part_that_the_page_holds(house: House) -> None:
    builders.ingest(house.cluster, running(), waiting())
    client = signed_in(house.ben)
    part, whole = client.get(LIVE, headers={"HX-Request": "true"}), client.get(LIVE)
    assert b"<html" not in part.content
    assert b'hx-trigger="every 30s"' in part.content
    assert timeless(part.content) in timeless(whole.content)
    assert "HX-Request" in whole.headers["Vary"]


def test_long_lists_are_read_page_by_page_without_a_gap_or_a_repeat(house: House) -> None:
    jobs = [running(f"r{n:03}") for n in range(60)] + [waiting(f"w{n:03}") for n in range(60)]
    builders.ingest(house.cluster, *jobs)
    assert "Running 60 jobs 60 waiting" in shown(house.ben)
    seen, query = set(listed(house.ben)), ""
    html = page(house.ben, LIVE)
    for name in ("running", "waiting"):
        more = re.search(rf'href="{LIVE}(\?{name}=[^"]+)"', html)
        assert more
        query = more[1]
        seen |= set(listed(house.ben, query))
        assert f'hx-get="{LIVE}{query}"' in page(house.ben, LIVE + query)
    assert seen == {f"{kind}{n:03}" for kind in "rw" for n in range(60)}
    assert "Back to the newest jobs" in shown(house.ben, query)
    assert len(listed(house.ben, "?running=nonsense")) == 100


def test_eve_sees_nothing_of_it(house: House) -> None:
    builders.ingest(house.cluster, running(), waiting())
    assert signed_in(house.eve).get(LIVE).status_code == 404
    text = words(page(house.eve, "/t/speech-lab/live/"))
    assert "Nothing runs and nothing waits" in text
    for tenant, seen in ((house.vision, 2), (house.speech, 0)):
        with tenant_scope(tenant), connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM billing_openjob")
            assert cursor.fetchone() == (seen,)


def test_names_are_text_whatever_they_hold(house: House) -> None:
    builders.ingest(house.cluster, running(name="<script>alert(1)</script>"), waiting(requested="<b>gpu</b>"))
    html = page(house.ben, LIVE)
    assert "<script>alert" not in html
    assert "<b>gpu" not in html


def test_the_number_of_queries_does_not_grow_with_what_runs(house: House) -> None:
    builders.ingest(
        house.cluster, *(running(f"r{n}") for n in range(5)), *(waiting(f"w{n}") for n in range(5))
    )
    few = query_count(house)
    builders.ingest(
        house.cluster,
        *(running(f"more{n}", user=f"u{n}", gpu_model=f"m{n}" if n % 2 else "a100") for n in range(100)),
        *(waiting(f"wait{n}", queue=f"q{n}") for n in range(100)),
    )
    assert query_count(house) == few <= 30


def timeless(content: bytes) -> bytes:
    """Without the second at which it was put together."""
    return re.sub(rb'data-moment="[^"]+"', b"", content).strip()


def query_count(house: House) -> int:
    client = signed_in(house.ann)
    with CaptureQueriesContext(connection) as queries:
        assert client.get(LIVE).status_code == 200
    return len(queries)


def day(text: str) -> Any:
    return datetime.fromisoformat(text).date()
