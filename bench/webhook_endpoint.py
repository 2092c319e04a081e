"""Endpoints of webhooks for the bench, in a process of their own: all but `/dead` answer at once."""

from __future__ import annotations

import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Endpoints(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/dead":
            time.sleep(60)
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Nothing is printed."""


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256


if __name__ == "__main__":
    server = Server(("127.0.0.1", int(sys.argv[1])), Endpoints)
    server.serve_forever()
