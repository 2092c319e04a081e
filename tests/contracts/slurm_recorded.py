"""A slurmrestd on 127.0.0.1 that answers from recorded files, and only what was recorded in the form it was."""

from __future__ import annotations

import json
import re
import socket
import ssl
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import ThreadingMixIn, UnixStreamServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from clusters.connectors.base import ConnectorError, Row, Secret, UsageFact
from clusters.connectors.http import Endpoint
from clusters.connectors.slurm.connector import SlurmConnector
from clusters.connectors.slurm.login import SlurmLogin
from portal.env import ROOT

FIXTURES = ROOT.parent / "shared" / "fixtures" / "slurmrestd"
VERSIONS = ("v0.0.38", "v0.0.39", "v0.0.40", "v0.0.41", "v0.0.42", "v0.0.44")
NOW = 1_800_000_000
TOKEN = "eyJhbGciOiJIUzI1NiJ9.dG9w-SECRET.signature"
LEGACY = {"start_time", "end_time", "skip_steps"}
MODERN = LEGACY | {"show_duplicates", "disable_truncate_usage_time", "scheduler_unset"}
JSON = "application/json"

ABSENT = "Recorded answers are absent: put them at ../shared/fixtures/slurmrestd."
pytest_skip = pytest.mark.skipif(not FIXTURES.is_dir(), reason=ABSENT)


def recorded(version: str, name: str) -> bytes:
    if not FIXTURES.is_dir():
        pytest.skip(ABSENT)
    return (FIXTURES / version / name).read_bytes()


def loaded(version: str, name: str = "slurmdb-jobs-window-nosteps.json") -> Any:
    return json.loads(recorded(version, name).decode("utf-8", "replace"))


def status_of(version: str, name: str) -> int:
    """The status that this file was recorded with; the outages have none in the index and say it in the docs."""
    for line in (FIXTURES / version / "INDEX.tsv").read_text().splitlines():
        if line.startswith(name + "\t"):
            return int(line.split("\t")[3])
    return {"outage-slurmctld-down-slurm_v0.0.38_jobs.json": 500}.get(name, 200)


@dataclass
class Reply:
    status: int = 200
    body: bytes = b""
    kind: str = JSON
    headers: dict[str, str] = field(default_factory=dict)
    wait: float = 0  # seconds before the first byte
    drip: float = 0  # seconds between one byte and the next
    cut: int = 0  # bytes at the end that are promised and never sent
    parts: Iterable[bytes] = ()  # instead of a body: made as it is sent, and ended by closing the connection

    def pieces(self) -> Iterable[bytes]:
        sent = self.body[: len(self.body) - self.cut]
        return self.parts or ([sent[at : at + 1] for at in range(len(sent))] if self.drip else [sent])


@dataclass
class Slurm:
    """What the server knows. `replies` go before all else: by the beginning of a path."""

    version: str = "v0.0.42"
    jobs: list[dict[str, Any]] = field(default_factory=list)
    live: bytes = b'{"jobs":[],"errors":[]}'
    nodes: bytes = b'{"nodes":[],"errors":[]}'
    offered: Sequence[str] = ()
    replies: dict[str, Reply | Callable[[dict[str, str]], Reply | None]] = field(default_factory=dict)
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list, repr=False)
    prefix: str = ""
    meta: dict[str, Any] = field(default_factory=dict)

    @property
    def modern(self) -> bool:
        return int(self.version.rpartition(".")[2]) >= 40

    def answer(self, path: str, query: dict[str, str]) -> Reply:
        for beginning, reply in self.replies.items():
            if path.startswith(beginning):
                response = reply(query) if callable(reply) else reply
                if response is not None:
                    return response
        if path == f"/slurmdb/{self.version}/jobs":
            return self._window(query)
        if not query and path in (plain := self._plain()):
            return plain[path]
        if (one := re.fullmatch(rf"/slurmdb/{self.version}/job/(\d+)", path)) and not query:
            return self._reply({"jobs": [job for job in self.jobs if job["job_id"] == int(one[1])]})
        return Reply(404, b"Unable find requested URL: " + path.encode(), "text/plain")

    def _plain(self) -> dict[str, Reply]:
        names = ",".join(rf'"\/slurmdb\/{name}\/jobs\/":{{}}' for name in self.offered or (self.version,))
        level = ["Operator"] if self.modern else "Operator"
        return {
            "/openapi/v3": Reply(body=f'{{"openapi":"3.0.3","paths":{{{names}}}}}'.encode()),
            f"/slurm/{self.version}/jobs": Reply(body=self.live),
            f"/slurm/{self.version}/nodes": Reply(body=self.nodes),
            f"/slurm/{self.version}/diag": self._reply({"statistics": {"req_time": NOW}}),
            f"/slurmdb/{self.version}/tres": self._reply({"TRES": []}),
            f"/slurmdb/{self.version}/user/portal": self._reply(
                {"users": [{"name": "portal", "administrator_level": level}]}
            ),
        }

    def _window(self, query: dict[str, str]) -> Reply:
        if set(query) != (MODERN if self.modern else LEGACY):
            return Reply(500, b'{"errors":[{"error_number":9000,"description":"Unknown Query field"}]}')
        since, until = (re.fullmatch(r"uts(\d+)", query[name]) for name in ("start_time", "end_time"))
        assert since
        assert until
        begin, end = int(since[1]), int(until[1])
        return self._reply({"jobs": [job for job in self.jobs if _overlaps(job["time"], begin, end)]})

    def _reply(self, value: dict[str, Any]) -> Reply:
        nothing = not self.modern and value.get("jobs") == []
        errors = [{"error_number": 9003, "error": "Nothing found with query"}] if nothing else []
        return Reply(body=json.dumps({**value, "errors": errors, "meta": self.meta}).encode())


def _overlaps(times: dict[str, Any], begin: int, end: int) -> bool:
    """Slurm's own condition, the same from 22.05 to 26.05."""
    return bool(0 < times["eligible"] < end and (times["end"] >= begin or times["end"] == 0))


def of(version: str) -> Slurm:
    """The recorded cluster of one version."""
    whole = loaded(version)
    return Slurm(
        version=version,
        jobs=whole["jobs"],
        live=recorded(version, "slurm-jobs.json"),
        nodes=recorded(version, "slurm-nodes.json"),
        meta=whole["meta"],
    )


class _Unix(ThreadingMixIn, UnixStreamServer):
    daemon_threads = True

    def get_request(self) -> tuple[socket.socket, Any]:
        request, _ = super().get_request()
        return request, ("local", 0)


def _handler(slurm: Slurm) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = (
            1 << 16
        )  # head and body are one packet: apart, the body waits 40 ms for the head to be acknowledged

        def log_message(self, *args: object) -> None: ...

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            query = dict(parse_qsl(parts.query, keep_blank_values=True))
            slurm.headers.append(dict(self.headers.items()))
            path = parts.path.removeprefix(slurm.prefix)
            slurm.requests.append((path, query))
            if not (self.headers.get("X-SLURM-USER-NAME") and self.headers.get("X-SLURM-USER-TOKEN")):
                self.reply(Reply(401, b"Authentication failure", "text/plain"))
            elif self.headers.get("Accept") != JSON or not parts.path.startswith(slurm.prefix):
                self.reply(Reply(404, b"Unable find requested URL", "text/plain"))
            else:
                self.reply(slurm.answer(path, query))

        def reply(self, reply: Reply) -> None:
            time.sleep(reply.wait)
            try:
                self.send_response(reply.status)
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Type", reply.kind)
                if not reply.parts:
                    self.send_header("Content-Length", str(len(reply.body)))
                self.end_headers()
                for piece in reply.pieces():
                    if reply.drip:
                        self.wfile.flush()
                        time.sleep(reply.drip)
                    self.wfile.write(piece)
                if reply.cut or reply.parts:
                    self.close_connection = True
            except OSError:  # the client gave up
                self.close_connection = True

    return Handler


@contextmanager
def serving(slurm: Slurm, *, tls: ssl.SSLContext | None = None, unix: Path | None = None) -> Iterator[str]:
    """The address under which it listens."""
    server: Any
    if unix is None:
        server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(slurm))
        address = f"http://127.0.0.1:{server.server_port}"
    else:
        server = _Unix(str(unix), _handler(slurm))
        address = "http://localhost"
    server.handle_error = lambda *_: None
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        address = address.replace("http://127.0.0.1", "https://localhost")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield address
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def connector(
    address: str, *, now: int, cluster: str = "lab", login: SlurmLogin | None = None, **endpoint: Any
) -> SlurmConnector:
    return SlurmConnector(
        Endpoint(base_url=address, **endpoint),
        login=login or SlurmLogin("portal", Secret(TOKEN)),
        cluster=cluster,
        clock=lambda: now,
    )


def now_of(slurm: Slurm) -> int:
    """A moment just after all that was recorded."""
    return max(int(job["time"]["submission"]) + 120 for job in slurm.jobs)


def facts(rows: Sequence[Row]) -> dict[str, UsageFact]:
    """By source key, newest last; a row that is no fact fails the test."""
    facts_by_key: dict[str, UsageFact] = {}
    for row in rows:
        assert isinstance(row, UsageFact), row
        facts_by_key[row.source_key] = row
    return facts_by_key


def a_job(number: int, *, submit: int, start: int = 0, end: int = 0, **more: Any) -> dict[str, Any]:
    """A row as v0.0.42 gives it, of one A100 unless told otherwise."""
    return {
        "job_id": number,
        "cluster": "lab",
        "account": "vision",
        "user": "ben",
        "name": "train",
        "partition": "a100",
        "qos": "normal",
        "nodes": "gpu1",
        "time": {
            "submission": submit, "eligible": submit, "start": start, "end": end, "suspended": 0,
            "elapsed": max(end - start, 0), "limit": {"set": True, "infinite": False, "number": 60},
        },
        "state": {"current": ["COMPLETED" if end else "RUNNING"], "reason": "None"},
        "tres": {
            "allocated": [
                {"type": "cpu", "name": "", "count": 4}, {"type": "mem", "name": "", "count": 16384},
                {"type": "node", "name": "", "count": 1}, {"type": "gres", "name": "gpu", "count": 1},
                {"type": "gres", "name": "gpu:a100", "count": 1},
            ],
            "requested": [],
        },
        **more,
    }  # fmt: skip


def live_jobs(*jobs: tuple[int, int, str]) -> bytes:
    """slurmctld's jobs: id, submission, state."""
    return json.dumps(
        {
            "jobs": [
                {"job_id": number, "submit_time": {"set": True, "number": submit}, "job_state": [state]}
                for number, submit, state in jobs
            ],
            "errors": [],
        }
    ).encode()


def refused(
    slurm: Slurm, *, now: int = NOW, login: SlurmLogin | None = None, timeout: int = 300
) -> ConnectorError:
    """The error of a pass, which proved nothing."""
    with serving(slurm) as address:
        source = connector(address, now=now, login=login, timeout=timeout)
        with pytest.raises(ConnectorError) as caught:
            list(source.usage(since=now - 3600, until=now, open_keys=()))
    assert source.reading.complete_through is None
    assert_no_secret(caught.value)
    return caught.value


def assert_no_secret(error: BaseException) -> None:
    """Not even in a traceback that prints the variables of our frames."""
    shown = traceback.TracebackException.from_exception(error, capture_locals=True)
    ours = [frame for frame in shown.stack if "/clusters/" in frame.filename]
    text = f"{error}{error!r}{[frame.locals for frame in ours]}{''.join(traceback.format_exception(error))}"
    assert ours
    assert "SECRET" not in text.replace('-SECRET"', "")  # source lines of this file
