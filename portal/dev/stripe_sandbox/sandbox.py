"""The sandbox as a whole: started and stopped, with its clock, faults and dashboard."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from portal.dev.stripe_sandbox import scheduler
from portal.dev.stripe_sandbox.api import Api
from portal.dev.stripe_sandbox.clock import Clock
from portal.dev.stripe_sandbox.dashboard import Dashboard
from portal.dev.stripe_sandbox.deliveries import Webhooks
from portal.dev.stripe_sandbox.errors import Json
from portal.dev.stripe_sandbox.faults import Faults
from portal.dev.stripe_sandbox.keys import Keys
from portal.dev.stripe_sandbox.requests import Request, Violation
from portal.dev.stripe_sandbox.server import Server
from portal.dev.stripe_sandbox.state import Data, State


class Sandbox:
    """A stand-in for Stripe on 127.0.0.1, in threads of this process.

    `now` makes the clock stand at that moment until it is advanced; else it goes with the machine's. With
    `home` the state outlives the process. `secret` without `webhook` gives an endpoint without an address,
    whose messages `webhooks.take()` hands out.
    """

    def __init__(
        self,
        *,
        port: int = 0,
        home: Path | None = None,
        webhook: str | None = None,
        secret: str | None = None,
        now: datetime | None = None,
        live: bool = False,
        restricted: Mapping[str, frozenset[str]] | None = None,
    ) -> None:
        self.clock = Clock(now)
        self.state = State(clock=self.clock, live=live)
        self._home = home
        if home is not None:
            home.mkdir(parents=True, exist_ok=True)
            self.state.data = Data.read(home) or self.state.data
            self.clock.offset = self.state.data.offset
        self.keys = Keys(live=live)
        for key, rights in (restricted or {}).items():
            self.keys.restrict(key, rights)
        self.faults = Faults()
        self.webhooks = Webhooks(self.state, self._keep)
        self.dashboard = Dashboard(self.state, self._keep)
        self.api = Api(self.state, self.keys, self.faults, self._keep)
        self._server = Server(port, self.api)
        self.state.base = self.url
        self._announce_to(webhook, secret)
        self._ticking = threading.Event()
        self._threads = [
            threading.Thread(
                target=self._server.serve_forever, args=(0.05,), name="stripe-sandbox", daemon=True
            ),
            threading.Thread(target=self._tick, name="stripe-sandbox-clock", daemon=True),
        ]

    @property
    def url(self) -> str:
        """For `base_addresses={"api": url}`."""
        return f"http://127.0.0.1:{self._server.port}"

    @property
    def key(self) -> str:
        """The secret key of the account."""
        return self.keys.main

    @property
    def requests(self) -> list[Request]:
        return self.api.requests

    @property
    def violations(self) -> list[Violation]:
        return self.api.violations

    def objects(self, kind: str) -> list[Json]:
        """All objects of that kind as they are, in order of creation, for what a test expects at the end."""
        with self.state.lock:
            return [dict(one) for one in self.state.all(kind)]

    def start(self) -> None:
        with self.state.lock:
            scheduler.begin(self.state)
            scheduler.settle(self.state)
            self._keep()
        self.clock.moved = self.settle
        for thread in self._threads:
            thread.start()
        self.webhooks.start()

    def stop(self) -> None:
        self._ticking.set()
        self._server.shutdown()
        self._server.server_close()
        self.webhooks.stop()
        for thread in self._threads:
            thread.join(timeout=5)
        with self.state.lock:
            self._keep()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def settle(self) -> None:
        """Do what is due by the clock."""
        with self.state.lock:
            if scheduler.settle(self.state):
                self._keep()
            self.state.changed.notify_all()

    def _tick(self) -> None:
        while not self._ticking.wait(0.5):
            self.settle()

    def _keep(self) -> None:
        if self._home is not None:
            self.state.data.offset = self.clock.offset
            self.state.data.write(self._home)

    def _announce_to(self, webhook: str | None, secret: str | None) -> None:
        """The endpoint of the command line: one, with that secret, however often it is started."""
        if webhook is None and secret is None:
            return
        for endpoint in self.state.all("webhook_endpoint"):
            if self.state.hidden(endpoint["id"]).get("told"):
                endpoint["url"] = webhook or endpoint["url"]
                self.state.hidden(endpoint["id"])["secrets"] = [secret] if secret else []
                return
        new_endpoint = self.dashboard.endpoint(webhook or "", secret=secret)
        self.state.hidden(new_endpoint["id"])["told"] = True
