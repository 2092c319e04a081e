"""The processes of the demo: those that prepare and end, and those that stay."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from portal.dev.demo.home import constant_port
from portal.ops.processes import Child

PYTHON = (sys.executable, "-m")
CELERY = (*PYTHON, "portal.celery_command", "--quiet")
WORKER = ("worker", "--pool", "threads", "--loglevel", "INFO", "--without-gossip", "--without-mingle")
WORKERS = {
    "worker": ("--queues", "wake,collect,reconcile,limits,mail,documents,webhooks", "--concurrency", "4"),
    "puller": ("--queues", "pull,rate", "--concurrency", "2"),  # what may take long
}


@dataclass(frozen=True)
class Children:
    """Each logs to a file of its own name below the home."""

    home: Path
    environ: dict[str, str]
    owner: dict[str, str]

    def setup(self) -> Child:
        """Its commits wait for no disk, which would take most of its time on a busy one.

        After a crash of the machine its last commits may be missing; then a next start goes on where they end.
        It alone is given the login that owns the tables.
        """
        child = self._child("setup", *PYTHON, "portal.dev.demo.setup", reports=True)
        options = f"{self.environ.get('PGOPTIONS', '')} -c synchronous_commit=off"
        child.environ = self.environ | {"PGOPTIONS": options} | self.owner
        return child

    def static(self) -> Child:
        return self._child("static", sys.executable, "manage.py", "collectstatic", "--noinput", "-v0")

    def bytecode(self) -> Child:
        """Whether it succeeds does not matter: what is not compiled here is when it is first imported."""
        return self._child("bytecode", *PYTHON, "compileall", "-q", "portal", "billing", "clusters")

    def sandbox(self) -> list[Child]:
        """The stand-in for Stripe, unless a key of Stripe's is set; adds to the environment where it is.

        Its address stays the same over restarts, for pages to pay on that are open.
        """
        if self.environ.get("STRIPE_SECRET_KEY"):
            return []
        port = str(constant_port(self.home / "sandbox_port"))
        self.environ.update(
            STRIPE_SECRET_KEY="sk_test_sandbox",  # noqa: S106 - of a stand-in, in which no money moves
            STRIPE_MODE="test",
            STRIPE_API_BASE=f"http://127.0.0.1:{port}",
        )
        place = ("--port", port, "--home", str(self.home / "sandbox"))
        return [self._child("sandbox", *PYTHON, "portal.dev.stripe_sandbox", *place)]

    def web(self) -> Child:
        return self._child("web", *PYTHON, "gunicorn", "--config", "deploy/gunicorn.conf.py")

    def background(self) -> list[Child]:
        """With the web, the same kinds as in docker-compose.yml, sized for one machine: two workers for all queues."""
        workers = [
            self._child(name, *CELERY, *WORKER, "--hostname", f"{name}@localhost", *queues)
            for name, queues in WORKERS.items()
        ]
        return [*workers, self._child("scheduler", *CELERY, "beat", "--pidfile", "")]

    def _child(self, name: str, *command: str, reports: bool = False) -> Child:
        log = self.home / "logs" / f"{name}.log"
        return Child(name, list(command), self.environ, log, reports=reports)
