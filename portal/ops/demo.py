"""`./run demo`: the whole product on this machine, with data to look at, until Ctrl-C."""

from __future__ import annotations

import argparse
import errno
import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from portal import env
from portal.ops import reach
from portal.ops.embedded.host import EmbeddedError, full_disk, is_full, private_directory
from portal.ops.embedded.peer import Peer
from portal.ops.embedded.postgres import Postgres
from portal.ops.embedded.redis import Redis
from portal.ops.processes import Child, ChildError, stop

UP_SECONDS = 60


class DemoError(Exception):
    """Why there is no demo; one sentence."""


class _StopError(Exception):
    """Somebody asked us to end."""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="./run demo", description=__doc__)
    parser.add_argument("--port", default="8000", help="where the pages are served (default 8000)")
    asked = parser.parse_args(arguments).port
    if not asked.isdecimal():
        say(f"{asked} is no port; choose one between 1 and 65535.")
        return 2
    port = int(asked)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _raise_stop)
    try:
        demo(env.home_of(), port)
    except _StopError:
        return 0
    except (DemoError, EmbeddedError, ChildError, reach.UnreachableError, env.SettingError) as error:
        say(str(error))
        return 2
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
            raise
        say(full_disk(env.home_of()))
        return 2
    return 0


def demo(home: Path, port: int) -> None:
    """Bring everything up, say where it is, and keep it up until a signal comes."""
    refuse_taken(port)
    reach_named()
    private_directory(home)
    with ExitStack() as stack:
        stack.enter_context(only_demo_of(home))
        peers = embedded_peers(home)
        for peer in peers:
            stack.enter_context(peer)
        environ = environment(home, port, peers)
        sandbox = stripe_sandbox(home, environ)
        prepare(home, environ)
        children = [*sandbox, *processes(home, environ)]
        stack.callback(stop, children)
        for child in children:
            child.start()
        wait_until_up(children, port)
        greet(home, port, sandbox=bool(sandbox))
        stack.callback(say, "Stopping ...")
        while True:
            time.sleep(0.5)
            for peer in peers:
                if peer.main_process() is None:
                    peer.ensure()
            for child in children:
                child.tend()


def reach_named() -> None:
    """Raises UnreachableError unless the peers that the environment names answer."""
    named = env.read()
    if named.database_url:
        reach.database(named.database_url)
    if named.redis_url:
        reach.broker(named.redis_url)


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
    environ["PYTHONUNBUFFERED"] = "1"
    if environ.get("ALLOWED_HOSTS"):
        environ["ALLOWED_HOSTS"] += ",127.0.0.1"  # where we look whether it is up, and tell people to look
    for peer in peers:
        environ["DATABASE_URL" if isinstance(peer, Postgres) else "REDIS_URL"] = peer.url()
    return environ


def prepare(home: Path, environ: dict[str, str]) -> None:
    """Migrate and seed, and collect the static files beside that."""
    logs = home / "logs"
    logs.mkdir(exist_ok=True)
    if not (home / "logins.txt").exists():  # a minute or more, in which nothing else is said
        say("Making the database and filling it with made-up data (once) ...")
    static = manage(environ, logs / "static.log", "collectstatic", "--noinput", "-v0")
    try:
        finish(manage(environ, logs / "migrate.log", "migrate", "--noinput", "-v1"), "migrate", logs)
        seed(home, environ, logs)
        finish(static, "static", logs)
    finally:
        if static.poll() is None:
            static.kill()
            static.wait()


def seed(home: Path, environ: dict[str, str], logs: Path) -> None:
    """Demonstration data; the logins that it prints are kept for later starts."""
    if not (env.ROOT / "portal/ops/management/commands/seed_demo.py").exists():
        say("There is no demonstration data to seed yet; the database is as it was.")
        return
    (logs / "seed.log").touch(mode=0o600)
    with (logs / "seed.log").open("ab") as log:
        command = [sys.executable, "manage.py", "seed_demo"]
        done = subprocess.run(command, env=environ, cwd=env.ROOT, stdout=subprocess.PIPE, stderr=log)
    if done.returncode != 0:
        if is_full(home, (logs / "seed.log").read_text(errors="replace")[-4096:]):
            raise DemoError(full_disk(home))
        raise DemoError(f"The demonstration data could not be made; {logs / 'seed.log'} says why.")
    if said := done.stdout.decode().strip():
        logins = home / "logins.txt"
        logins.touch(mode=0o600)
        logins.write_text(said + "\n")


def manage(environ: dict[str, str], log: Path, *command: str) -> subprocess.Popen[bytes]:
    log.touch(mode=0o600)
    with log.open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "manage.py", *command],
            env=environ,
            cwd=env.ROOT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )


def finish(process: subprocess.Popen[bytes], name: str, logs: Path) -> None:
    if process.wait() == 0:
        return
    log = logs / f"{name}.log"
    text = log.read_text(errors="replace")
    if is_full(log.parent, text):
        raise DemoError(full_disk(log.parent))
    last = (text.strip().splitlines() or ["no reason given"])[-1]
    raise DemoError(f"The step {name} failed: {last} (all of it: {log})")


def processes(home: Path, environ: dict[str, str]) -> list[Child]:
    """The same three as in docker-compose.yml, sized for one machine."""
    logs = home / "logs"
    python = [sys.executable, "-m"]
    celery = [*python, "celery", "--app", "portal.celery", "--quiet"]
    worker = [*celery, "worker", "--pool", "threads", "--concurrency", "2", "--loglevel", "INFO"]
    return [
        Child("web", [*python, "gunicorn", "--config", "deploy/gunicorn.conf.py"], environ, logs / "web.log"),
        Child("worker", [*worker, "--without-gossip", "--without-mingle"], environ, logs / "worker.log"),
        Child("scheduler", [*celery, "beat", "--pidfile", ""], environ, logs / "scheduler.log"),
    ]


def wait_until_up(children: list[Child], port: int) -> None:
    """Until a page could be served; raises ChildError as soon as one of them has given up."""
    end = time.monotonic() + UP_SECONDS
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while time.monotonic() < end:
        for child in children:
            if not child.running:
                raise ChildError(f"The {child.name} does not start: {child.last_words()} (see {child.log})")
        try:
            with opener.open(f"http://127.0.0.1:{port}/readyz", timeout=2) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise ChildError(f"Nothing answers on port {port} after {UP_SECONDS} s; {children[0].log} may say why.")


def stripe_sandbox(home: Path, environ: dict[str, str]) -> list[Child]:
    """The stand-in for Stripe, unless a key of Stripe's is set; adds to `environ` where it is.

    Its address stays the same over restarts, for pages to pay on that are open.
    """
    if environ.get("STRIPE_SECRET_KEY"):
        return []
    port = _kept_port(home / "sandbox_port")
    environ |= {
        "STRIPE_SECRET_KEY": "sk_test_sandbox",
        "STRIPE_MODE": "test",
        "STRIPE_API_BASE": f"http://127.0.0.1:{port}",
    }
    command = [
        sys.executable,
        "-m",
        "portal.ops.stripe_sandbox",
        "--port",
        str(port),
        "--home",
        str(home / "sandbox"),
    ]
    return [Child("sandbox", command, environ, home / "logs" / "sandbox.log")]


def _kept_port(file: Path) -> int:
    """The port in the file, if it is still free; else one that is, kept there."""
    wanted = int(file.read_text()) if file.exists() else 0
    for number in (wanted, 0):
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


def greet(home: Path, port: int, *, sandbox: bool) -> None:
    logins = home / "logins.txt"
    lines = [f"ClusterTab is at http://127.0.0.1:{port}/"]
    if logins.exists():
        lines += ["", logins.read_text().rstrip()]
    if sandbox:
        lines += ["", "Cards are charged in a sandbox: no money moves. 4242 4242 4242 4242 pays."]
    lines += ["", f"Data and logs are in {home}. Ctrl-C stops it."]
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def refuse_taken(port: int) -> None:
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


def say(sentence: str) -> None:
    sys.stderr.write(f"{sentence}\n")
    sys.stderr.flush()


def _raise_stop(number: int, frame: Any) -> None:
    del number, frame
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)  # we are stopping; being asked again changes nothing
    raise _StopError


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
