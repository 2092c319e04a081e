"""A stand-in for the API that the agent talks to, which answers as a test has it, and the agent as a module."""

from __future__ import annotations

import importlib.util
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

from portal.env import ROOT
from tests.contracts.sacct_exports import COLUMNS, row

AGENT = ROOT / "deploy" / "agent" / "clustertab_agent.py"
HEADER = "|".join(COLUMNS)
Reply = tuple[int, Any, dict[str, str]]


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("clustertab_agent", AGENT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


agent = load()


def jobs(count: int, **fields: str) -> str:
    """An export of so many jobs of Ben's."""
    return "\n".join([HEADER, *(row(JobIDRaw=str(number), **fields) for number in range(1, count + 1)), ""])


def accepted(events: list[Any]) -> Reply:
    return 200, {"results": [{"status": "accepted"} for _ in events], "warnings": {}}, {}


class Requests(list[tuple[str, str, list[Any]]]):
    """Path, Authorization and events of each request."""

    url = ""

    @property
    def pushed(self) -> list[list[Any]]:
        return [events for path, _, events in self if path.startswith("/api/v1/usage-events")]


@contextmanager
def portal(
    answer: Callable[[list[Any]], Reply] = accepted,
    *,
    me: Callable[[], Reply] = lambda: (200, {"scopes": ["usage:push"]}, {}),
    tls: ssl.SSLContext | None = None,
    host: str = "127.0.0.1",
) -> Iterator[Requests]:
    """Answers pushed events as `answer` says. Its url is in the list of requests that it got."""
    requests = Requests()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requests.append((self.path, self.headers["Authorization"], []))
            self.reply(*me())

        def do_POST(self) -> None:
            events = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            requests.append((self.path, self.headers["Authorization"], events))
            self.reply(*answer(events))

        def reply(self, status: int, body: Any, headers: dict[str, str]) -> None:
            text = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response_only(status)
            for name, value in ({"Date": formatdate(usegmt=True)} | headers).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *args: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: Any, client_address: Any) -> None:
            pass  # of a client that does not trust it

    server = Server(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    requests.url = f"{'https' if tls else 'http'}://{host}:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield requests
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def a_config(folder: Path, url: str, **portal_settings: str) -> Path:
    """Of an agent that reads the directory `in`, with a key that ends in SECRET."""
    key = folder / "key"
    key.write_text("ct_live_" + "k" * 30 + "SECRET\n")
    key.chmod(0o600)
    (folder / "in").mkdir(exist_ok=True)
    settings = {"url": url, "cluster": "own", "key_file": str(key)} | portal_settings
    lines = ["[portal]", *(f"{name} = {value}" for name, value in settings.items())]
    lines += ["[agent]", f"state_dir = {folder / 'state'}"]
    lines += ["[directory]", f"path = {folder / 'in'}", "settle_seconds = 0"]
    config = folder / "agent.conf"
    config.write_text("\n".join(lines) + "\n")
    return config
