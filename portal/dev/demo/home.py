"""What a demo needs of its data directory and of the machine before anything starts."""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from portal import env
from portal.dev.demo import DemoError
from portal.dev.embedded.peer import Peer
from portal.dev.embedded.postgres import Postgres
from portal.dev.embedded.redis import Redis
from portal.ops import connectivity


def reach_named() -> None:
    """Raises UnreachableError unless the peers that the environment names answer."""
    named = env.read()
    if named.database_url:
        connectivity.database(named.database_url)
    if named.redis_url:
        connectivity.broker(named.redis_url)


def embedded_peers(home: Path) -> list[Peer]:
    peers: list[Peer] = []
    if not os.environ.get("DATABASE_URL"):
        peers.append(Postgres(home))
    if not os.environ.get("REDIS_URL"):
        peers.append(Redis(home))
    return peers


def environment(home: Path, port: int, peers: list[Peer]) -> dict[str, str]:
    """What the children are told. Addresses hold passwords: they go here, never into arguments."""
    environ = dict(os.environ)
    environ["DJANGO_SETTINGS_MODULE"] = "portal.settings"
    environ["CLUSTERTAB_HOME"] = str(home)
    env.secret_keys(home, make=True)  # found there by the children, who are told of a database
    environ["PORT"] = str(port)
    environ.setdefault("COOKIE_SUFFIX", f"_{port}")
    environ.setdefault("STATIC_ROOT", str(home / "static"))
    environ.setdefault("PORTAL_URL", f"http://127.0.0.1:{port}")
    environ.setdefault("EMAIL_URL", f"file:{quote(str(home / 'mail'))}")  # none leaves this machine
    environ.setdefault("WEBHOOK_ALLOW_HTTP", "yes")  # to try webhooks out with a program on this machine
    environ.setdefault("WEBHOOK_ALLOWED_NETWORKS", "127.0.0.0/8,::1/128")
    environ["PYTHONUNBUFFERED"] = "1"
    environ.pop("DATABASE_OWNER_URL", None)  # nothing that stays has it
    if environ.get("ALLOWED_HOSTS"):
        environ["ALLOWED_HOSTS"] += ",127.0.0.1"  # where we look whether it is up, and tell people to look
    for peer in peers:
        environ["DATABASE_URL" if isinstance(peer, Postgres) else "REDIS_URL"] = peer.url()
    return environ


def owner(peers: list[Peer]) -> dict[str, str]:
    """What is told besides to whoever migrates; whoever named a database has named its owner too."""
    database = next((peer for peer in peers if isinstance(peer, Postgres)), None)
    return {"DATABASE_OWNER_URL": database.owner_url()} if database else {}


def constant_port(file: Path) -> int:
    """The port in the file, if it is still free; else one that is, written there."""
    earlier = int(file.read_text()) if file.exists() else 0
    for number in (earlier, 0):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", number))
            except OSError:
                continue
            port = int(probe.getsockname()[1])
            file.write_text(str(port))
            return port
    raise DemoError("No port is free for the sandbox of Stripe; set STRIPE_SECRET_KEY to do without.")


def require_free_port(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OverflowError:
            raise DemoError(f"{port} is no port; choose one between 1 and 65535.") from None
        except PermissionError:
            raise DemoError(f"Port {port} is not open to ordinary users; choose one above 1023.") from None
        except OSError:
            raise DemoError(f"Port {port} is in use; choose another with --port.") from None


@contextmanager
def only_demo_of(home: Path) -> Iterator[None]:
    """The kernel forgets the lock with its holder, so nothing stale can remain."""
    with (home / "demo.lock").open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DemoError(f"A demo of {home} runs already; set CLUSTERTAB_HOME for another.") from None
        yield
