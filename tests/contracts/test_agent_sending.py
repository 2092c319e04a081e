"""How the agent of `deploy/agent/` takes what it is answered: nothing that it was to send is lost."""

from __future__ import annotations

import json
import re
import tempfile
import time
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

from tests.contracts.agent_portal import Reply, a_config, accepted, agent, jobs, portal
from tests.contracts.test_slurm_transport import Signed, authority, listening

__all__ = ["authority"]


def a_sender(folder: Path, url: str, count: int, **settings_: str) -> Any:
    """With so many jobs in a spool of its own."""
    config = agent.read_config(str(a_config(folder, url, **settings_)))
    spool = agent.Spool(tempfile.mkdtemp(dir=folder))
    (folder / "in" / "a.sacct").write_text(jobs(count))
    agent.Collector(config, spool, None).collect()
    return agent.Sender(agent.Portal(config["portal"]), spool)


@pytest.mark.parametrize(
    ("headers", "pause"),
    [
        ({"Retry-After": "7"}, 7),
        ({"Retry-After": "in an hour"}, 3600),
        ({}, None),
    ],
    ids=["seconds", "date", "none"],
)
@pytest.mark.parametrize("status", [429, 503])
def test_it_comes_back_when_it_was_told_to(
    status: int, headers: dict[str, str], pause: int | None, tmp_path: Path
) -> None:
    if headers.get("Retry-After") == "in an hour":  # a date, which is told when the test runs
        headers = {"Retry-After": formatdate(time.time() + 3600, usegmt=True)}
    with portal(lambda events: (status, {"detail": "Later."}, headers)) as requests:
        sender = a_sender(tmp_path, requests.url, 3)
        waits = [sender.send(time.monotonic() + 60) for _ in range(3)]
        if pause is None:
            assert 0.5 <= waits[0] <= 2 <= waits[2] <= 8
        else:
            assert all(abs(wait - pause) < 60 * (pause > 60) + 1 for wait in waits)
        assert sender.spool.count() == 3


def test_too_large_a_batch_is_halved_and_one_that_is_too_large_alone_is_kept_aside(tmp_path: Path) -> None:
    def answer(events: list[Any]) -> Reply:
        is_large = len(events) > 3 or any(event["id"].startswith("5@") for event in events)
        return (413, b"<html>nginx</html>", {}) if is_large else accepted(events)

    with portal(answer) as requests:
        sender = a_sender(tmp_path, requests.url, 10)
        assert sender.send(time.monotonic() + 60) == 0
    taken = [event["id"][0] for events in requests.pushed for event in events if answer(events)[0] == 200]
    assert taken == [*"12346789", "1"]
    refused = Path(sender.spool.refused).read_text().splitlines()
    assert [json.loads(line)["event"]["id"][:2] for line in refused] == ["5@"]


@pytest.mark.parametrize(
    "answer",
    [
        (400, b"<html>a proxy</html>", {}),
        (400, {"type": "urn:clustertab:problem:invalid-request", "errors": [{"pointer": "cluster"}]}, {}),
        (200, {"results": []}, {}),
        (200, b"Welcome to the hotel's network", {}),
        (401, {"detail": "No valid key."}, {}),
        (403, {"detail": "It needs the scope usage:push."}, {}),
        (409, {"detail": "It is read otherwise."}, {}),
        (500, {}, {}),
        (302, b"", {"Location": "/elsewhere"}),
    ],
    ids=lambda answer: f"{answer[0]} {answer[1]!r}"[:40],
)
def test_whatever_is_no_answer_to_each_event_loses_none(
    answer: Reply, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with portal(lambda events: answer) as requests:
        sender = a_sender(tmp_path, requests.url, 3)
        for _ in range(3):
            assert sender.send(time.monotonic() + 60) > 0
    assert sender.spool.count() == 3
    assert not Path(sender.spool.refused).exists()
    assert all(path.startswith(("/api/v1/me", "/api/v1/usage-events")) for path, _, _ in requests)
    assert "3 events wait" in capsys.readouterr().err


@pytest.mark.parametrize("ahead", [-900, 900])
def test_with_a_wrong_clock_nothing_is_sent(
    ahead: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    date = formatdate(time.time() - ahead, usegmt=True)
    with portal(me=lambda: (200, {}, {"Date": date})) as requests:
        sender = a_sender(tmp_path, requests.url, 3)
        assert sender.send(time.monotonic() + 60) > 0
    assert requests.pushed == []
    shown = re.search(r"differ by (-?\d+) s", capsys.readouterr().err)
    assert shown
    assert abs(int(shown[1]) - ahead) < 60  # however slow the machine is


def test_another_server_than_ours_gets_no_key(tmp_path: Path) -> None:
    with portal() as other:
        moved = {"Location": f"{other.url}/api/v1/me"}
        with portal(me=lambda: (307, b"", moved)) as requests:
            assert a_sender(tmp_path, requests.url, 1).send(time.monotonic() + 60) > 0
    assert other == []


def test_tls_is_verified_by_an_authority_of_ours(
    authority: Signed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ca.pem").write_text(authority.pem)
    with portal(tls=listening(authority, tmp_path), host="localhost") as requests:
        sender = a_sender(tmp_path, requests.url, 1, ca_file=str(tmp_path / "ca.pem"))
        assert sender.send(time.monotonic() + 60) == 0
        assert len(requests.pushed) == 1
        distrustful = a_sender(tmp_path, requests.url, 1)
        assert distrustful.send(time.monotonic() + 60) > 0
        by_number = requests.url.replace("localhost", "127.0.0.1")
        misnamed = a_sender(tmp_path, by_number, 1, ca_file=str(tmp_path / "ca.pem"))
        assert misnamed.send(time.monotonic() + 60) > 0
    assert len(requests.pushed) == 1
    assert "CERTIFICATE_VERIFY_FAILED" in capsys.readouterr().err
