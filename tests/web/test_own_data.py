"""A person downloads what is stored under their name, or reads why not."""

from __future__ import annotations

import json
from io import BytesIO
from typing import Any
from zipfile import ZipFile

import psycopg
import pytest
from django.db import connection
from django.test import Client

from portal.core.locks import Work
from portal.core.tenants.models import User
from portal.ops import person_data
from portal.web import own_data
from tests.scenarios.test_person_exported import BEN, ben_of_two_labs

pytestmark = pytest.mark.django_db

TOO_MUCH = "There is too much under your name for this page: ask the operators for your data."
TOO_LONG = "Reading your data took too long: ask the operators for it."
OTHERS = "Other people&#x27;s data is being written: try again in a minute."


@pytest.fixture
def ben() -> User:
    return ben_of_two_labs()


def test_a_person_downloads_their_own(
    ben: User, client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    assert client.get("/your-data/").status_code == 302
    client.force_login(ben)
    assert "All that is stored under your name" in client.get("/your-data/").content.decode()
    response = client.post("/your-data/")
    with ZipFile(BytesIO(b"".join(response))) as archive:
        person, jobs = json.loads(archive.read("person.json")), archive.read("jobs.csv").decode()
    assert person["account"][0]["email"] == BEN
    assert ("bens-train" in jobs, "eves-secret" in jobs, "anns-job" in jobs) == (True, False, False)
    line: Any
    (line,) = [record.msg for record in caplog.records if record.name == "portal.web"]
    assert (line["by"], line["person"], line["rows"]["jobs"]) == (ben.pk, ben.pk, 2)
    monkeypatch.setattr(own_data, "MOST_ROWS", 1)
    assert TOO_MUCH in client.post("/your-data/", follow=True).content.decode()


def test_a_person_whose_data_takes_too_long_or_is_being_written_reads_why(
    ben: User, client: Client, monkeypatch: pytest.MonkeyPatch, database_url: str
) -> None:
    client.force_login(ben)
    with psycopg.connect(database_url) as other:
        other.execute("SELECT pg_advisory_xact_lock(%s, %s)", [int(Work.EXPORTING), ben.pk])
        shown = client.post("/your-data/", follow=True).content.decode()
        assert "Your data is being written already: wait for that download." in shown
    monkeypatch.setattr(own_data, "LONGEST_QUERY", "200ms")
    monkeypatch.setattr(person_data, "pack", lambda *_: connection.cursor().execute("SELECT pg_sleep(30)"))
    assert TOO_LONG in client.post("/your-data/", follow=True).content.decode()


def test_two_people_at_once_download_theirs(ben: User, client: Client, database_url: str) -> None:
    client.force_login(ben)
    with psycopg.connect(database_url) as other:
        for place, answer in ((1, "PK"), (0, OTHERS)):
            other.execute("SELECT pg_advisory_xact_lock(%s, %s)", [int(Work.EXPORT_PLACE), place])
            response = client.post("/your-data/", follow=True)
            assert answer in response.getvalue().decode("latin-1")


def test_it_is_proved_again_who_asks(ben: User, client: Client, settings: Any) -> None:
    settings.CLUSTERTAB_REAUTHENTICATION_MINUTES = 30
    client.force_login(ben)
    response = client.post("/your-data/")
    assert (response.status_code, "reauthenticate" in response["Location"]) == (302, True)
