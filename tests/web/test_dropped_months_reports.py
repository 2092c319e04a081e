"""Reports over days of dropped months: made of the files, they say what they said before, or which part they lack."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.db import ProgrammingError, connection, transaction

from billing.models import EfficiencySnapshot, RatedJob, RunCountSnapshot, SealedFile
from billing.queries import search
from billing.reports import efficiency_snapshots, run_count_snapshots
from billing.sealed_months import drop
from clusters import absent_records
from clusters.absent_records import MOST
from clusters.models import Cluster, UtilisationHour
from portal.core.outbox import outbox
from portal.core.outbox.models import OutboxMessage
from portal.core.tenants.models import Membership, Ownership, Role, Tenant, User
from portal.core.tenants.scope import tenant_scope
from tests.api.door import door
from tests.builders import a_cluster, a_job, a_person, a_plan, a_tenant, an_operator, at, ingest
from tests.hostile.filters import filters_removed
from tests.scenarios.test_energy import KWH, PRICES, an_energy_meter
from tests.sealed_march import MARCH, enter_march, enter_march_and_may, sealed
from tests.stories import close
from tests.web.house import page, signed_in
from tests.web.test_dropped_months_pages import (
    LIST,
    SENTENCE,
    UNREAD,
    content_of,
    dropped,
    refusal,
    without_note,
)
from tests.web.test_overview import words

EFFICIENCY = "/t/vision-lab/efficiency/"
MARCH_TO_MAY = "from=2026-03-01&through=2026-05-31"
pytestmark = pytest.mark.django_db(transaction=True)  # what is shown of files goes as a transaction ends

CHANGE = (
    "/t/vision-lab/costs/change/?from=2026-05-01&through=2026-05-31&compare=other"
    "&earlier_from=2026-03-01&earlier_through=2026-03-31"
)
CHANGE_API = "/usage/change?earlier_from=2026-03-01&earlier_to=2026-04-01&from=2026-05-01&to=2026-06-01"
UNCOUNTED = b"Runs are not counted, as those of 2026-03 are only in the files of sealed months."


@pytest.fixture(autouse=True)
def directory(settings: Any, tmp_path: Path) -> None:
    settings.CLUSTERTAB_SEALED_MONTHS = tmp_path / "sealed"


@pytest.fixture
def ann() -> User:
    return enter_march_and_may()


def test_why_spending_changed_counts_the_runs_of_a_dropped_month(ann: User) -> None:
    api = door(ann, Tenant.objects.get(slug="vision-lab"))
    paths = [
        CHANGE,
        f"{CHANGE}&by=user&and=queue",
        f"{CHANGE}&user=mia",
        CHANGE.replace("through=2026-05-31", "through=2026-05-30"),
    ]
    by_user = f"{CHANGE_API}&group_by=user"
    before = [content_of(ann, path) for path in paths], api.get(by_user).body
    assert b"3 \xe2\x86\x92 5 runs, 5 of them tasks of mia\xe2\x80\x99s array sweep" in before[0][0]
    dropped()
    answer = api.get(by_user)
    assert ([content_of(ann, path) for path in paths], answer.body) == before
    assert "X-Months-In-Files" not in answer.headers


def test_why_spending_changed_has_every_amount_where_runs_of_a_dropped_month_cannot_be_counted(
    ann: User, tmp_path: Path
) -> None:
    api, op = door(ann, Tenant.objects.get(slug="vision-lab")), an_operator()
    totals = [api.get(CHANGE_API).body["by_currency"][0][name] for name in ("earlier", "later", "difference")]
    dropped()
    SealedFile.objects.filter(kind="jobs").update(rows=MOST + 1)
    for _ in range(2):
        text = content_of(ann, CHANGE)
        assert UNCOUNTED in text
        assert b"Volume" in text
        answer = api.get(CHANGE_API)
        (dollars,) = answer.body["by_currency"]
        assert [dollars[name] for name in ("earlier", "later", "difference")] == totals
        assert {part["part"] for part in dollars["parts"]} == {"volume"}
        assert answer.headers["X-Months-In-Files"] == "2026-03"
        SealedFile.objects.filter(kind="jobs").update(rows=1)
        for file in (tmp_path / "sealed" / "2026-03").glob("tenant-*/jobs.parquet"):
            file.unlink()
    client = signed_in(op)
    client.post("/operator/tenants/vision-lab/look/", {"reason": "ticket 4711"})
    assert UNCOUNTED in client.get(CHANGE).content


def test_runs_of_a_dropped_month_are_counted_by_a_worker_where_they_are_many(
    ann: User, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_count_snapshots, "LARGE", 0)
    dropped()
    files = [*(tmp_path / "sealed" / "2026-03").glob("tenant-*/jobs.parquet")]
    for file in files:
        file.rename(file.with_suffix(".away"))
    assert b"Until they are counted" in content_of(ann, CHANGE)
    outbox.drain()
    text = content_of(ann, CHANGE)
    assert UNCOUNTED in text
    assert b"Volume" in text
    for file in files:
        file.with_suffix(".away").rename(file)
    RunCountSnapshot.objects.all().delete()
    content_of(ann, CHANGE)
    outbox.drain()
    text = content_of(ann, CHANGE)
    assert b"3 \xe2\x86\x92 5 runs, 5 of them tasks of mia\xe2\x80\x99s array sweep" in text
    assert b"Runs as of" in text


def test_an_operator_is_told_why_a_tenants_spending_changed(ann: User) -> None:
    path, op = f"{CHANGE_API}&tenant=vision-lab", door(an_operator(), None)
    before = op.get(path).body
    dropped()
    assert op.get(path).body == before


def test_with_every_filter_forgotten_eve_is_told_of_her_own_runs_alone(ann: User) -> None:
    eve = a_person("eve@speech.example", Tenant.objects.get(slug="speech-lab"))
    path = f"{CHANGE}&by=user".replace("vision-lab", "speech-lab")
    before = content_of(eve, path)
    dropped()
    with filters_removed() as removed:
        text = content_of(eve, path)
    assert text == before
    assert b"mia" not in text
    assert removed.count > 3


def paths_of_efficiency() -> list[str]:
    march = "from=2026-03-01&through=2026-03-31"
    return [
        f"{EFFICIENCY}?{march}&by=project&top=5",
        f"{EFFICIENCY}?{MARCH_TO_MAY}&by=user",
        f"{EFFICIENCY}?{MARCH_TO_MAY}&by=pod",
        f"{EFFICIENCY}csv?{MARCH_TO_MAY}&by=namespace&top=5",
        f"{EFFICIENCY}waste/zero-use/?{MARCH_TO_MAY}",
        f"{EFFICIENCY}waste/idle-tail/?{march}",
    ]


def test_efficiency_says_of_a_dropped_month_what_it_said_before(ann: User) -> None:
    job = RatedJob.objects.get(job_id="1").record_id
    paths = [*paths_of_efficiency(), f"{LIST}{job}/"]
    before = [content_of(ann, path) for path in paths]
    assert b">70_1</a>" in before[-3]
    assert b"GPU utilization" in before[-1]
    dropped()
    for path, text in zip(paths, before, strict=True):
        assert without_note(content_of(ann, path)) == text, path


def test_figures_that_a_worker_keeps_are_made_of_the_files_and_name_their_jobs(
    ann: User, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    paths = [path for path in paths_of_efficiency() if "csv" not in path]
    at_once = [content_of(ann, path) for path in paths]
    monkeypatch.setattr(efficiency_snapshots, "LARGE", 0)
    kept = [_of_worker(ann, path) for path in paths]
    dropped()
    assert [_of_worker(ann, path) for path in paths] == kept  # computed before the month was dropped
    EfficiencySnapshot.objects.all().delete()
    assert [_of_worker(ann, path) for path in paths] == kept
    assert all(b"As of" in text for text in kept)
    assert all(b">70_1</a>" in text for text in (at_once[-2], kept[-2]))
    for file in (tmp_path / "sealed" / "2026-03").glob("tenant-*/jobs.parquet"):
        file.unlink()
    assert content_of(ann, paths[1]) == kept[1]  # what is kept needs no file, unless it names jobs
    EfficiencySnapshot.objects.update(
        as_of=at("2026-05-07 00:00")
    )  # a newer one is due, which nobody can compute
    assert b"As of" in content_of(ann, paths[1])
    outbox.drain()
    assert b"As of" in content_of(ann, paths[1])
    EfficiencySnapshot.objects.all().delete()
    assert UNREAD in refusal(ann, paths[0])
    assert not EfficiencySnapshot.objects.exists()


def test_a_worker_that_cannot_read_files_which_pages_can_is_a_sentence_and_is_asked_once(
    ann: User, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(efficiency_snapshots, "LARGE", 0)
    dropped()
    path = paths_of_efficiency()[0]
    content_of(ann, path)  # it is being computed
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr("django.conf.settings.CLUSTERTAB_SEALED_MONTHS", tmp_path / "nothing")
        outbox.drain()
    for _ in range(2):
        assert UNREAD in refusal(ann, path)
        assert not OutboxMessage.objects.undone().filter(task__contains="efficiency").exists()
    drop.load_back(month=MARCH)
    assert b">70_1</a>" not in content_of(ann, path)  # asked for at once, now that they are back
    outbox.drain()
    assert b"As of" in content_of(ann, path)


def _of_worker(ann: User, path: str) -> bytes:
    content_of(ann, path)
    outbox.drain()
    EfficiencySnapshot.objects.update(as_of=at("2026-06-01 00:00"), requested_at=None)
    return content_of(ann, path)


def test_efficiency_of_files_that_cannot_be_read_is_a_sentence(ann: User) -> None:
    dropped()
    SealedFile.objects.filter(kind="jobs").update(rows=MOST + 1)
    for path in paths_of_efficiency():
        assert SENTENCE in refusal(ann, path), path
    assert b"90_1" in content_of(ann, f"{EFFICIENCY}?from=2026-05-01&through=2026-05-31&by=pod")


def test_eve_is_told_of_her_own_efficiency_alone_with_every_filter_forgotten(ann: User) -> None:
    eve = a_person("eve@speech.example", Tenant.objects.get(slug="speech-lab"))
    paths = [path.replace("vision-lab", "speech-lab") for path in paths_of_efficiency()]
    before = [content_of(eve, path) for path in paths]
    dropped()
    with filters_removed() as removed:
        after = [content_of(eve, path) for path in paths]
    for path, old, new in zip(paths, before, after, strict=True):
        assert new == old, path
        assert b"mia" not in new, path
    assert removed.count > 10


def test_hours_before_a_job_was_hers_are_not_eves(ann: User) -> None:
    lab, speech = (Tenant.objects.get(slug=f"{name}-lab") for name in ("vision", "speech"))
    records = {number: RatedJob.objects.get(job_id=number).record_id for number in ("1", "2")}
    ownership = Ownership.objects.filter(tenant=speech)
    ownership.update(since=at("2026-04-01 00:00"))
    dropped()
    with tenant_scope(speech), connection.cursor() as cursor:
        absent_records.show([MARCH], with_hours=True)
        cursor.execute("SELECT record_id, hour FROM billing_ownhour")
        assert cursor.fetchall() == [(records["2"], int(at("2026-04-01 00:00").timestamp()))]
        cursor.execute("SELECT current_user")
        assert cursor.fetchone() == ("clustertab_portal",)
    with tenant_scope(lab), connection.cursor() as cursor:
        absent_records.show([MARCH], with_hours=True)
        cursor.execute(
            "SELECT count(*) FILTER (WHERE record_id = %s), count(*) FROM billing_ownhour", [records["2"]]
        )
        assert cursor.fetchone() == (0, 5)
    with tenant_scope(speech):
        absent_records.show([MARCH], with_hours=True)
        with pytest.raises(ProgrammingError, match="permission denied"), transaction.atomic():
            UtilisationHour.objects.first()


def found(person: User, text: str, slug: str = "vision-lab") -> tuple[str, bytes]:
    """Where the search leads, or what its page says."""
    path = f"/t/{slug}/search/?q={text}"
    response = signed_in(person).get(path)
    return (response["Location"], b"") if response.status_code == 302 else ("", content_of(person, path))


NOT_SEARCHED = b"Jobs of 2026-03 were not searched"


def test_the_search_finds_jobs_of_a_dropped_month_by_their_number(ann: User) -> None:
    texts = ["1", "4", "70", "70_1", "9", "7"]
    before = [found(ann, text) for text in texts]
    assert before[0][0] == f"{LIST}{RatedJob.objects.get(job_id='1').record_id}/"
    assert [before[2][1].count(b"70_%d</strong>" % number) for number in range(3)] == [1, 1, 1]
    assert b"Nothing has this number or name" in before[5][1]
    dropped()
    assert [found(ann, text) for text in texts] == before
    text = page(an_operator(), "/operator/search/?q=70")
    assert NOT_SEARCHED.decode() in text
    assert "70_1" not in text


def test_the_search_names_months_that_it_did_not_look_at(
    ann: User, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    dropped()
    with monkeypatch.context() as patch:
        patch.setattr(absent_records, "SEARCHED", 1)
        (_, few) = found(ann, "70")
    for file in (tmp_path / "sealed" / "2026-03").glob("tenant-*/jobs.parquet"):
        file.unlink()
    for text in (few, found(ann, "70")[1]):
        assert NOT_SEARCHED in text
        assert b"Nothing has this number or name" in text
    User.objects.filter(pk=ann.pk).update(language="de")
    assert b"Jobs aus 2026-03 wurden nicht durchsucht" in found(ann, "70")[1]


def test_the_search_finds_nothing_of_others_in_files(ann: User) -> None:
    lab, speech = (Tenant.objects.get(slug=f"{name}-lab") for name in ("vision", "speech"))
    Tenant.objects.filter(pk=lab.pk).update(members_see_own=True)
    ben, eve = a_person("ben@vision.example", lab, role=Role.MEMBER), a_person("eve@speech.example", speech)
    Membership.objects.filter(user=ben).update(scheduler_users=["ben"])
    dropped()
    assert b"70_1" not in found(ben, "70")[1]
    assert found(ben, "1")[0]
    with filters_removed():
        for text in ("1", "70", "70_1"):
            where, said = found(eve, text, "speech-lab")
            assert (where, b"70_1</strong>" in said) == ("", False)
            assert NOT_SEARCHED not in said


def test_a_member_finds_their_own_jobs_among_many_newer_ones_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(search, "MOST", 2)
    enter_march()
    march = {"started": "2026-03-06 10:00", "ended": "2026-03-06 12:00"}
    newer = [a_job(job_id=f"70_{number}", user="mia", name="sweep", **march) for number in range(5)]
    own = a_job(job_id="70_500", user="ben", name="own", started="2026-03-05 10:00", ended="2026-03-05 11:00")
    ingest(Cluster.objects.get(), own, *newer, as_of="2026-05-06")
    close("2026-04", on="2026-05-03")
    sealed()
    lab = Tenant.objects.get(slug="vision-lab")
    Tenant.objects.filter(pk=lab.pk).update(members_see_own=True)
    ben = a_person("ben@vision.example", lab, role=Role.MEMBER)
    Membership.objects.filter(user=ben).update(scheduler_users=["ben"])
    before = found(ben, "70")
    assert b"70_500" in before[1]
    dropped()
    assert found(ben, "70") == before


def test_what_was_measured_of_a_late_record_is_not_told_as_unknown() -> None:
    cluster = a_cluster("gpu1", complete_through="2026-05-02 12:00", energy_meter=an_energy_meter())
    plan = a_plan("with-energy", prices=PRICES, charges=("gpu", "energy"))
    ann = a_person(tenant=a_tenant("vision-lab", plan=plan, accounts=[(cluster, "vision")]))
    job = {"job_id": "1", "user": "ben", "started": "2026-03-02 10:00", "ended": "2026-03-02 12:00"}
    ingest(cluster, a_job(**job, energy=5 * KWH), as_of="2026-05-02 12:00")
    close("2026-03", on="2026-04-03")
    close("2026-04", on="2026-05-03")
    sealed()
    record = RatedJob.objects.get(meter="").record_id

    def said() -> tuple[bool, bool]:
        text = words(page(ann, f"/t/vision-lab/jobs/{record}/"))
        assert "Energy unknown" not in text
        return "Energy 5 kWh" in text, "are not shown: rows of its months" in text

    assert said() == (True, False)
    dropped()
    assert said() == (False, True)
    ingest(cluster, a_job(**job, energy=5 * KWH, name="renamed"), as_of="2026-05-02 12:00")
    assert RatedJob.objects.get(meter="").name == "renamed"  # it came back alone
    assert said() == (False, True)
    drop.load_back(month=MARCH)
    assert said() == (True, False)
