"""The order in which the demo comes up: each process as soon as what it needs is there."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from portal.dev.demo import setup, static_files
from portal.dev.demo.children import Children
from portal.dev.demo.home import (
    embedded_peers,
    environment,
    only_demo_of,
    owner,
    reach_named,
    require_free_port,
)
from portal.dev.demo.steps import Steps
from portal.dev.demo.waiting import Web, wait_for_end, wait_for_step
from portal.dev.embedded.host import private_directory
from portal.dev.embedded.peer import Peer
from portal.ops.processes import Child, stop


def demo(home: Path, port: int) -> None:
    """Bring everything up, say where it is, and keep it up until a signal comes."""
    require_free_port(port)
    reach_named()
    private_directory(home)
    steps = Steps(sys.stderr)
    with ExitStack() as stack:
        stack.enter_context(only_demo_of(home))
        peers = embedded_peers(home)
        with steps.step("database"):
            for peer in peers:
                stack.enter_context(peer)
        (home / "logs").mkdir(exist_ok=True)
        mail = not os.environ.get("EMAIL_URL")
        children = Children(home, environment(home, port, peers), owner(peers))
        started = stack.enter_context(_together())
        sandbox = _start(children, steps, peers, started)
        _greet(home, port, sandbox=sandbox, mail=mail)
        stack.callback(_say, "Stopping ...")
        while True:
            time.sleep(0.5)
            for peer in peers:
                if peer.main_process() is None:
                    peer.ensure()
            for child in started:
                child.tend()


def _start(children: Children, steps: Steps, peers: list[Peer], started: list[Child]) -> bool:
    """All children that stay are in `started`. Returns whether the stand-in for Stripe is among them.

    The web loads while the rows are made. Worker and scheduler begin afterwards: they would act on half of the data,
    and compete with the web for the processors. So does the stand-in for Stripe, whose state is among the rows.
    """
    sandbox = children.sandbox()
    with _together() as preparing:
        rows = _launch(children.setup(), preparing)
        static_root = Path(children.environ["STATIC_ROOT"])
        with steps.step(setup.SCHEMA):
            if not static_files.are_collected(children.home, static_root):
                wait_for_end(_launch(children.static(), preparing), "static files")
                static_files.note_collected(children.home, static_root)
                _launch(children.bytecode(), preparing)  # which rows and web need, on a first start
            wait_for_step(rows, setup.SCHEMA, others=lambda: _servers(peers))
        web = Web(_launch(children.web(), started), int(children.environ["PORT"]))
        with steps.step(setup.ROWS):
            wait_for_end(rows, setup.ROWS, others=lambda: _servers(peers))
        for child in sandbox:
            _launch(child, started)
    with steps.step("web"):
        web.wait()
    for child in children.background():
        _launch(child, started)
    return bool(sandbox)


def _servers(peers: list[Peer]) -> list[int]:
    return [pid for peer in peers if (pid := peer.main_process()) is not None]


@contextmanager
def _together() -> Iterator[list[Child]]:
    """Children that end when the block does."""
    children: list[Child] = []
    try:
        yield children
    finally:
        stop(children)


def _launch(child: Child, group: list[Child]) -> Child:
    group.append(child)
    child.start()
    return child


def _greet(home: Path, port: int, *, sandbox: bool, mail: bool) -> None:
    logins = home / "logins.txt"
    lines = [f"ClusterTab is at http://127.0.0.1:{port}/"]
    if logins.exists():
        lines += ["", logins.read_text().rstrip()]
    if sandbox:
        lines += ["", "Cards are charged in a sandbox: no money moves. 4242 4242 4242 4242 pays."]
    if mail:
        lines += [
            "",
            f"E-mails are saved in {home / 'mail'}, with the links that confirm addresses and invite people.",
        ]
    lines += ["", f"Data and logs are in {home}. Ctrl-C stops it."]
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def _say(sentence: str) -> None:
    sys.stderr.write(f"{sentence}\n")
    sys.stderr.flush()
