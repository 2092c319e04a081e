"""What goes wrong between us and Slurm: each gives its sentence, proves nothing, and leaves out no row."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from clusters.connectors.base import ConnectorError, Secret
from clusters.connectors.slurm import windows
from clusters.connectors.slurm.faults import (
    ControllerDownError,
    DatabaseDownError,
    LoginRefusedError,
    MissingError,
)
from clusters.connectors.slurm.login import SlurmLogin
from tests.contracts.slurm_recorded import (
    NOW,
    VERSIONS,
    Reply,
    Slurm,
    a_job,
    assert_no_secret,
    connector,
    now_of,
    of,
    pytest_skip,
    recorded,
    refused,
    serving,
    status_of,
)


def replying(path: str, reply: Reply, *, version: str = "v0.0.42") -> Slurm:
    return Slurm(version=version, replies={path.format(v=version): reply})


JOBS, NODES = "/slurmdb/{v}/jobs", "/slurm/{v}/nodes"


@pytest_skip
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", ["expired", "badtoken"])
def test_a_token_that_slurm_does_not_take(version: str, kind: str) -> None:
    """Where slurmdbd's refusal is as if it were down, slurmctld's tells: it refuses too, by a word for it or none."""
    slurm = Slurm(version=version)
    names = {JOBS: f"{kind}-slurmdb-jobs.json", NODES: "expired-slurm-jobs.json"}
    for path, name in names.items():
        slurm.replies[path.format(v=version)] = Reply(status_of(version, name), recorded(version, name))
    error = refused(slurm)
    speaks = version == "v0.0.38" or status_of(version, names[NODES]) == 511
    if not speaks:
        assert isinstance(error, DatabaseDownError)
        assert "Neither slurmctld nor slurmdbd" in str(error)
        assert "its token is not accepted, or both are down" in str(error)
    else:
        assert isinstance(error, LoginRefusedError)
        assert "does not accept the token of portal" in str(error)
        assert not error.retry
    assert "scontrol token username=portal" in str(error)


@pytest_skip
@pytest.mark.parametrize("version", VERSIONS)
def test_a_slurmdbd_that_is_down_is_told_apart_from_a_bad_token(version: str) -> None:
    name = "badtoken-slurmdb-jobs.json"  # as of a database that is down, but on v0.0.38
    if version == "v0.0.38":
        name = "outage-slurmdbd-down-slurmdb_v0.0.38_jobs.json"
    error = refused(replying(JOBS, Reply(200 if version == "v0.0.38" else status_of(version, name),
                                         recorded(version, name)), version=version))  # fmt: skip
    assert isinstance(error, DatabaseDownError)
    assert "or its database, is down; slurmctld answers and takes the token of portal" in str(error)
    assert error.retry


@pytest_skip
@pytest.mark.parametrize("version", VERSIONS)
def test_no_token_arrived(version: str) -> None:
    reply = Reply(401, recorded(version, "noauth-jobs.txt"), "text/plain")
    error = refused(replying("/openapi/v3", reply, version=version))
    assert isinstance(error, LoginRefusedError)
    assert not error.retry


@pytest_skip
@pytest.mark.parametrize(
    "name", ["outage-database-down-slurmdb_jobs.json", "outage-slurmdbd-down-slurmdb_v0.0.38_jobs.json"]
)
def test_accounting_that_is_down_answers_two_hundred(name: str) -> None:
    error = refused(replying(JOBS, Reply(200, recorded("v0.0.38", name)), version="v0.0.38"))
    assert isinstance(error, DatabaseDownError)
    assert "slurmdbd behind" in str(error)
    assert "or its database, is down" in str(error)
    assert error.retry


@pytest_skip
@pytest.mark.parametrize(
    ("version", "name"),
    [("v0.0.38", "outage-slurmctld-down-slurm_v0.0.38_jobs.json")]
    + [(version, "expired-slurm-jobs.json") for version in VERSIONS],
)
def test_rows_are_given_without_slurmctld_and_nothing_runs_on(version: str, name: str) -> None:
    slurm = of(version)
    slurm.replies[f"/slurm/{version}/jobs"] = Reply(status_of(version, name), recorded(version, name))
    now = now_of(slurm)
    with serving(slurm) as address:
        source = connector(address, now=now)
        rows = list(source.usage(since=now - 7200, until=now, open_keys=()))
    assert len(rows) == 28
    running = next(row for row in rows if getattr(row, "name", "") == "still-running")
    assert running.seen_until == running.started  # type: ignore[union-attr]
    assert source.reading.complete_through is None
    assert source.reading.nodes is None
    assert source.reading.missing == []
    assert "the watermark stays" in source.reading.notes[0]


@pytest_skip
@pytest.mark.parametrize("version", VERSIONS)
def test_the_kinds_of_refusal_are_told_apart(version: str) -> None:
    name = "expired-slurm-jobs.json"
    slurm = replying(
        "/slurm/{v}/jobs", Reply(status_of(version, name), recorded(version, name)), version=version
    )
    kind = {500: ControllerDownError, 511: LoginRefusedError}[status_of(version, name)]
    if version == "v0.0.39":
        kind = DatabaseDownError
    with serving(slurm) as address, connector(address, now=NOW).rest as rest, pytest.raises(kind):
        rest.get(rest.slurm("jobs"), key="jobs")


@pytest_skip
@pytest.mark.parametrize("version", VERSIONS)
def test_a_job_that_there_is_not(version: str) -> None:
    name = "slurm-job-missing.json"
    slurm = replying(
        "/slurm/{v}/job/", Reply(status_of(version, name), recorded(version, name)), version=version
    )
    refusal = pytest.raises(MissingError, match="Slurm has nothing at")
    with serving(slurm) as address, connector(address, now=NOW).rest as rest, refusal:
        rest.get(rest.slurm("job/999999"), key="jobs")


@pytest_skip
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ["slurmdb-jobs-badtime.json", "slurmdb-jobs-badparam.json"])
def test_a_question_that_is_not_understood(version: str, name: str) -> None:
    if status_of(version, name) == 200:
        pytest.skip("newer versions ignore unknown parameters")
    error = refused(replying(JOBS, Reply(status_of(version, name), recorded(version, name)), version=version))
    assert "does not understand the question" in str(error)
    assert not error.retry


@pytest_skip
@pytest.mark.parametrize("version", VERSIONS)
def test_a_window_without_jobs_is_a_success(version: str) -> None:
    slurm = replying(JOBS, Reply(200, recorded(version, "slurmdb-jobs-empty.json")), version=version)
    with serving(slurm) as address:
        source = connector(address, now=NOW)
        assert list(source.usage(since=NOW - 3600, until=NOW, open_keys=())) == []
    assert source.reading.complete_through == NOW - 60


@pytest.mark.parametrize(
    ("reply", "sentence", "retry"),
    [
        (Reply(200, b'{"jobs":[],"errors":[{"error_number":12,"error":"Odd"}]}'), 'HTTP 200 ("Odd", 12)', True),
        (Reply(200, b'{"errors":[]}'), 'without "jobs"', True),
        (Reply(200, b'{"jobs":null,"errors":[]}'), 'without "jobs"', True),
        (Reply(200, b'{"jobs":[{"job_id":1'), "breaks off in the middle", True),
        (Reply(200, b'{"jobs":[],"errors":[]}', cut=3), "broke its answer off", True),
        (Reply(502, b"<html>overloaded</html>", "text/html", cut=3), "without a word from Slurm", True),
        (Reply(200, b"<html>Sign in</html>", "text/html; charset=utf-8"), "answers with text/html where JSON", False),
        (Reply(200, b'{"jobs":{"a":1},"errors":[]}'), "in a form that is not known", False),
        (Reply(302, headers={"Location": "https://sso.example.org/in?k=v"}), "to https://sso.example.org/in:", False),
        (Reply(403, b"no", "text/html"), "check what the proxy wants as extra headers", False),
        (Reply(404, b"Unable find requested URL", "text/plain"), "has no /slurmdb/v0.0.42/jobs: Slurm", True),
        (Reply(502, b"<html>", "text/html"), "without a word from Slurm", True),
        (Reply(429, b"", "text/plain"), "HTTP 429", True),
    ],
)  # fmt: skip
def test_an_answer_that_is_none(reply: Reply, sentence: str, retry: bool) -> None:
    error = refused(replying(JOBS, reply))
    assert sentence in str(error)
    assert str(error).endswith(".")
    assert "\n" not in str(error)
    assert error.retry is retry


def test_what_answers_is_no_slurmrestd() -> None:
    error = refused(replying("/openapi/v3", Reply(404, b"nothing here", "text/plain")))
    assert "There is no slurmrestd at http://127.0.0.1:" in str(error)
    assert not error.retry


def test_nothing_answers() -> None:
    with serving(Slurm()) as address:
        pass
    source = connector(address, now=NOW)
    with pytest.raises(ConnectorError, match=f"Nothing answers at {address}") as caught:
        list(source.usage(since=NOW - 3600, until=NOW, open_keys=()))
    assert caught.value.retry
    assert_no_secret(caught.value)


def test_a_slow_server_is_asked_for_less_and_then_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "LEAST", 1500)
    slurm = replying(JOBS, Reply(200, b'{"jobs":[]}', wait=1.3))
    error = refused(slurm, timeout=1)
    assert "gave no whole answer within 1 s" in str(error)
    assert error.retry
    spans = [
        int(query["end_time"][3:]) - int(query["start_time"][3:])
        for path, query in slurm.requests
        if path.endswith("v0.0.42/jobs")
    ]
    assert spans == [3660, 1800, 1500]


def test_a_server_that_drips_is_given_up_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "LEAST", 3600)
    error = refused(replying(JOBS, Reply(200, b" " * 40, drip=0.05)), timeout=1)
    assert "gave no whole answer within 1 s" in str(error)


def test_a_body_that_is_too_large_is_asked_for_in_smaller_windows() -> None:
    def heavy(query: dict[str, str]) -> Reply | None:
        span = int(query["end_time"][3:]) - int(query["start_time"][3:])
        return Reply(200, b'{"jobs":[]}' + b" " * 5000) if span > 2000 else None

    job = a_job(1, submit=NOW - 3000, start=NOW - 2900, end=NOW - 2000)
    slurm = Slurm(replies={"/slurmdb/v0.0.42/jobs": heavy}, jobs=[job])
    with serving(slurm) as address:
        source = connector(address, now=NOW)
        source.rest.http.largest = 4000
        assert len(list(source.usage(since=NOW - 3600, until=NOW, open_keys=()))) == 1
    assert source.reading.complete_through == NOW - 60


def test_no_secret_is_logged(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    caplog.set_level(logging.DEBUG)
    for name in ("httpx", "httpcore", "httpcore.http11", "httpcore.connection"):
        logger = logging.getLogger(name)  # as loud as they can be, whatever the settings say
        monkeypatch.setattr(logger, "disabled", False)
        monkeypatch.setattr(logger, "propagate", True)
        monkeypatch.setattr(logger, "level", logging.DEBUG)
        logger.manager._clear_cache()  # type: ignore[attr-defined]
    with serving(Slurm()) as address:
        source = connector(address, now=NOW, headers={"X-Proxy": Secret("proxy-SECRET")})
        list(source.usage(since=NOW - 3600, until=NOW, open_keys=()))
    assert "HTTP Request: GET" in caplog.text
    assert "send_request_headers" in caplog.text
    assert "SECRET" not in caplog.text
    assert "SECRET" not in repr(source.rest.http.endpoint) + repr(source.rest.login) + repr(
        vars(source.rest.http)
    )


@pytest.mark.parametrize("broken", ["line\nbreak-SECRET", "läst-SECRET", "nul\0-SECRET"])
def test_a_token_that_cannot_be_sent_is_not_repeated(broken: str) -> None:
    with serving(Slurm()) as address:
        source = connector(address, now=NOW, login=SlurmLogin("portal", Secret(broken)))
        with pytest.raises(ConnectorError, match="single lines of plain letters") as caught:
            list(source.usage(since=NOW - 3600, until=NOW, open_keys=()))
    assert_no_secret(caught.value)


def test_a_base_url_with_a_password_is_not_repeated() -> None:
    with pytest.raises(ConnectorError, match="extra header instead") as caught:
        connector("https://op:pass-SECRET@slurm.example.org", now=NOW)
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize(
    "base", ["slurm.example.org", "ftp://x", "http://", "http://h:99999", "http://h/?a=1"]
)
def test_a_base_url_that_is_none(base: str) -> None:
    with pytest.raises(ConnectorError) as caught:
        connector(base, now=NOW)
    assert not caught.value.retry
    assert replace(connector("http://h", now=NOW).rest.http.endpoint).base_url == "http://h"


@pytest_skip
def test_a_user_that_was_added_before_the_hosts_knew_it_is_told_what_to_do() -> None:
    """Tried on 22.05 and 24.11: it has the level, and is refused until both daemons look its number up again."""
    body = b'{"errors":[{"description":"x","error_number":2002,"error":"Access/permission denied","source":"y"}]}'
    message = str(refused(replying(JOBS, Reply(500, body))))
    assert "`sacctmgr modify user portal set adminlevel=Operator`" in message
    assert "`useradd --system portal`), then `scontrol reconfigure` and `sacctmgr reconfigure`." in message
