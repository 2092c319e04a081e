"""A host as its service manager runs it: `python -m tests.integration.host`, for tests of more than one machine.

Each service is started again as soon as it has ended. In a network namespace of its own it reaches what listens on the
loopback of the others' host through sockets of files, which namespaces share.
"""

from __future__ import annotations

import fcntl
import json
import selectors
import socket
import socketserver
import struct
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

SIOCSIFFLAGS, IFF_UP = 0x8914, 1
PAUSE = 0.3  # seconds until what has ended is started again


class Relay(socketserver.BaseRequestHandler):
    """Hands bytes to and fro until one side has closed."""

    server: TcpRelay | FileRelay

    def handle(self) -> None:
        with self.server.connect() as other, selectors.DefaultSelector() as ready:
            ready.register(self.request, selectors.EVENT_READ, other)
            ready.register(other, selectors.EVENT_READ, self.request)
            with suppress(OSError):  # who is killed closes nothing
                while True:
                    for key, _ in ready.select():
                        piece = key.fileobj.recv(65_536)  # type: ignore[union-attr]  # both are sockets
                        if not piece:
                            return
                        key.data.sendall(piece)


class TcpRelay(socketserver.ThreadingTCPServer):
    """In a host: a port of its loopback leads to the file."""

    daemon_threads = allow_reuse_address = True

    def __init__(self, port: int, path: Path) -> None:
        self.path = path
        super().__init__(("127.0.0.1", port), Relay)

    def connect(self) -> socket.socket:
        other = socket.socket(socket.AF_UNIX)
        other.connect(str(self.path))
        return other


class FileRelay(socketserver.ThreadingUnixStreamServer):
    """Outside of the hosts: the file leads to a port."""

    daemon_threads = True

    def __init__(self, path: Path, port: int) -> None:
        self.port = port
        super().__init__(str(path), Relay)

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port))


def serve(relay: socketserver.BaseServer) -> None:
    threading.Thread(target=relay.serve_forever, args=(0.05,), daemon=True).start()


def main() -> None:
    """The first argument is the host's directory, with `host.json`; what runs stands in its `running.json`."""
    home = Path(sys.argv[1])
    host = json.loads((home / "host.json").read_text())
    if host["apart"]:
        socket.sethostname(home.name)
        _raise_loopback()
        for port, path in host["ports"].items():
            serve(TcpRelay(int(port), Path(path)))
    running: dict[str, subprocess.Popen[bytes]] = {}
    with (home / "services.log").open("ab") as log:
        while True:
            for name, command in host["services"].items():
                if name not in running or running[name].poll() is not None:
                    running[name] = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
                    _write(home, running)
            time.sleep(PAUSE)


def _write(home: Path, running: dict[str, subprocess.Popen[bytes]]) -> None:
    new = home / "running.new"
    new.write_text(json.dumps({name: process.pid for name, process in running.items()}))
    new.rename(home / "running.json")


def _raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP))


if __name__ == "__main__":
    main()
