"""/metrics shows what everybody spends: who gets it, and in which form."""

from __future__ import annotations

import pytest
from django.db import OperationalError, connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from prometheus_client.parser import text_string_to_metric_families
from pytest_django.fixtures import Settings

from portal import env
from portal.env_variables import SettingError
from portal.ops.metrics import collector
from tests import sharing
from tests.web.house import House, a_house, signed_in
from tests.web.test_access import without_token
from tests.web.test_queries import grown

pytestmark = pytest.mark.django_db

begun, house = sharing.fixtures(a_house, "house")

TOKEN = "a-token-of-the-monitoring"
MOST_QUERIES = 20


def scraped(*, shown: str) -> tuple[int, str]:
    response = Client().get("/metrics", headers={"Authorization": shown})
    return response.status_code, response.content.decode()


def test_operators_read_it_and_tenants_find_nothing(house: House) -> None:
    for person in (house.ann, house.ben, house.eve):
        refused = signed_in(person).get("/metrics")
        assert refused.status_code == 404
        assert without_token(refused.content) == without_token(signed_in(person).get("/nowhere").content)
    response = signed_in(house.op).get("/metrics")
    assert response.status_code == 200
    assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert "no-store" in response.headers["Cache-Control"]
    assert signed_in(house.op).post("/metrics").status_code == 405


def test_nobody_without_a_name_reads_it_or_is_sent_to_sign_in() -> None:
    assert Client().get("/metrics").status_code == 404


def test_whoever_shows_the_token_reads_it(settings: Settings) -> None:
    settings.CLUSTERTAB_METRICS_TOKEN = TOKEN
    a_house()
    status, body = scraped(shown=f"Bearer {TOKEN}")
    assert status == 200
    assert "training_job_cost_usd" in body
    for wrong in (
        "Bearer",
        "Bearer ",
        f"Bearer {TOKEN[:-1]}",
        f"Bearer {TOKEN}x",
        f"Basic {TOKEN}",
        "Bearer ünïcode",
    ):
        assert (wrong, scraped(shown=wrong)[0]) == (wrong, 404)


def test_without_a_token_in_the_settings_no_token_opens_it() -> None:
    for shown in ("Bearer", "Bearer ", "Bearer None", f"Bearer {TOKEN}"):
        assert (shown, scraped(shown=shown)[0]) == (shown, 404)


def test_a_token_that_can_be_guessed_is_refused_without_being_printed() -> None:
    for weak in ("monitoring", "sixteen letters and blanks", "a-token-of-the-mönitoring"):
        with pytest.raises(SettingError, match="CLUSTERTAB_METRICS_TOKEN must have at least 16") as refusal:
            env.read({"CLUSTERTAB_METRICS_TOKEN": weak})
        assert weak not in str(refusal.value)
    environment = env.read({"CLUSTERTAB_METRICS_TOKEN": TOKEN})
    assert environment.metrics_token == TOKEN
    assert TOKEN not in repr(environment)


def test_openmetrics_is_given_where_it_is_asked_for(house: House) -> None:
    accept = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
    response = signed_in(house.op).get("/metrics", headers={"Accept": accept})
    assert response.headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
    assert response.content.endswith(b"# EOF\n")


def test_without_a_database_it_says_so_and_not_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(**_: object) -> object:
        raise OperationalError("password of the database")

    house = a_house()
    monkeypatch.setattr(collector, "families", broken)
    response = signed_in(house.op).get("/metrics")
    assert response.status_code == 503
    assert response.content == b"The database did not answer; the log says why.\n"


def test_the_number_of_queries_does_not_grow_with_the_data(settings: Settings) -> None:
    settings.CLUSTERTAB_METRICS_TOKEN = TOKEN
    house = a_house()
    counts = []
    for month, jobs in (("2026-05", range(10)), ("2026-06", range(10, 110))):
        grown(house, month, jobs)
        with CaptureQueriesContext(connection) as queries:
            status, body = scraped(shown=f"Bearer {TOKEN}")
        assert status == 200
        counts.append(len(queries))
    assert counts[0] == counts[1] <= MOST_QUERIES
    assert list(text_string_to_metric_families(body))
