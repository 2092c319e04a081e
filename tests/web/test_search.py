"""One field finds a job by its id, an invoice by its number, users, tenants and transfers: one's own, or Op's all."""

from __future__ import annotations

import pytest
from django.db import connection

from tests import builders
from tests.web.house import House, a_house, page, signed_in
from tests.web.test_overview import words

pytestmark = pytest.mark.django_db


@pytest.fixture
def house() -> House:
    house = a_house()
    builders.ingest(
        house.cluster,
        builders.a_job(job_id="2041_7", name="sweep", started="2026-03-05 10:00", ended="2026-03-05 11:00"),
        builders.a_job(job_id="2041_8", name="sweep", started="2026-03-05 10:00", ended="2026-03-05 11:00"),
        builders.a_job(job_id="20411", name="other", started="2026-03-05 10:00", ended="2026-03-05 11:00"),
        builders.a_job(job_id="2041_9", account="speech", user="eve", name="secret"),
        as_of="2026-04-20",
    )
    return house


def test_ann_finds_her_jobs_users_and_invoices_and_goes_straight_to_the_only_one(house: House) -> None:
    ann, number = signed_in(house.ann), house.invoice.number or ""
    answer = ann.get("/t/vision-lab/search/?q=17")
    assert answer.headers["Location"] == f"/t/vision-lab/jobs/{house.record('17')}/"
    assert ann.get(f"/t/vision-lab/search/?q={number.lower()}").headers["Location"] == (
        f"/t/vision-lab/invoices/{number}/"
    )
    text = words(page(house.ann, "/t/vision-lab/search/?q=2041"))
    assert "Jobs 2041_8" in text
    assert "2041_7 sweep" in text
    assert "20411" not in text.partition("Jobs 2041")[2]  # another job, whose number begins alike
    text = page(house.ann, "/t/vision-lab/search/?q=ada")
    assert 'href="/t/vision-lab/jobs/?user=ada"' in text
    assert 'action="/t/vision-lab/search/"' in text  # the field stands on each of her pages


def test_of_strangers_nothing_is_told_not_even_that_it_is_there(house: House) -> None:
    nothing = words(page(house.ann, "/t/vision-lab/search/?q=nothing-like-it"))
    for text in ("19", "eve", "2041_9", "secret", "speech", "SPEECH", "speech-lab"):
        seen = words(page(house.ann, f"/t/vision-lab/search/?q={text}"))
        assert seen == nothing.replace("nothing-like-it", text)
    seen = words(page(house.eve, f"/t/speech-lab/search/?q={house.invoice.number}"))
    assert "Nothing has this number or name" in seen
    assert signed_in(house.eve).get("/t/vision-lab/search/?q=17").status_code == 404
    assert signed_in(house.eve).get("/operator/search/?q=17").status_code == 404


def test_ben_who_sees_no_invoices_finds_none(house: House) -> None:
    text = words(page(house.ben, f"/t/vision-lab/search/?q={house.invoice.number}"))
    assert "Nothing has this number or name" in text
    assert "invoice number" not in text


def test_op_finds_anybodys(house: House) -> None:
    house.transfer  # noqa: B018 - it comes in now
    text = words(page(house.op, "/operator/search/?q=2041"))
    assert "2041_9 Speech Lab" in text
    assert "2041_7 Vision Lab" in text
    for q, expected in (
        ("eve", "eve Speech Lab"),
        ("eve@speech", "eve@speech.example Speech Lab · owner"),
        ("lab", "Tenants Speech Lab speech-lab Vision Lab vision-lab"),
        ("THANK", "Bank transfers thank you"),
        ("op@cluster", "op@cluster.example Operator"),
        ("%", "Nothing has this number or name"),
        ("'; --", "Nothing has this number or name"),
        ("\0", "Job id, invoice number, tenant"),
    ):
        assert expected in words(page(house.op, f"/operator/search/?q={q.replace('%', '%25')}")), q
    assert signed_in(house.op).get("/operator/search/?q=19").status_code == 302


def test_a_job_is_looked_up_by_an_index_whatever_the_collation_and_in_the_role_of_tenants(
    house: House,
) -> None:
    condition = "job_id ~>=~ '2041_' AND job_id ~<~ '2041`'"
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
        cursor.execute("SELECT set_config('role', 'clustertab_portal', true)")
        cursor.execute("SELECT set_config('app.tenant_id', %s, true)", [str(house.vision.pk)])
        cursor.execute(
            f"EXPLAIN SELECT * FROM billing_ratedjob WHERE meter = '' AND tenant_id = {house.vision.pk} AND {condition}"
        )
        plan = " ".join(row[0] for row in cursor.fetchall())
    assert "~>=~" in plan.partition("Index Cond")[2]
