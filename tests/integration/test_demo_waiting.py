"""What the demo waits for: as long as something moves, and no longer; and whom it names then."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from portal.dev.demo import DemoError
from portal.dev.demo.steps import Steps
from portal.dev.demo.waiting import Web, wait_for_end, wait_for_step
from portal.dev.embedded.host import EmbeddedError
from portal.dev.embedded.redis import Redis
from portal.ops.movement import LEAST_CPU, PATIENCE, Movement, Reading, cpu_seconds
from portal.ops.processes import Child, ChildError, stop
from tests.ports import a_free_port

SOON = 0.6  # seconds of patience with what does nothing at all
LONG = 300  # seconds of patience with what works


@contextmanager
def a_child(home: Path, code: str, *, name: str = "setup", reports: bool = False) -> Iterator[Child]:
    child = Child(name, [sys.executable, "-c", code], {}, home / f"{name}.log", reports=reports)
    child.start()
    try:
        yield child
    finally:
        if child.process is not None:
            child.process.kill()
        stop([child])


def moments(*readings: Reading) -> Movement:
    """A piece of work that is looked at once in two thirds of the patience that there is with it."""
    clock = iter(range(0, PATIENCE * 1000, PATIENCE * 2 // 3))
    left = iter(readings)
    return Movement(lambda: next(left), clock=lambda: next(clock))


def test_whoever_works_ever_so_slowly_is_waited_for() -> None:
    slow = moments(*(Reading(cpu=LEAST_CPU * number) for number in range(500)))
    assert not any(slow.has_ended() for _ in range(499))


@pytest.mark.parametrize("sign", [Reading(log=1), Reading(answer="503"), Reading(cpu=LEAST_CPU)])
def test_each_sign_of_work_counts(sign: Reading) -> None:
    movement = moments(Reading(), Reading(), sign, sign, sign)
    assert [movement.has_ended() for _ in range(4)] == [False, False, False, True]


def test_the_idling_of_a_server_is_no_work() -> None:
    idle = moments(Reading(cpu=1), Reading(cpu=1 + LEAST_CPU / 8), Reading(cpu=1 + LEAST_CPU / 4))
    assert [idle.has_ended() for _ in range(2)] == [False, True]


def test_processor_time_includes_descendants_and_those_that_have_ended(tmp_path: Path) -> None:
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    ended = f"import subprocess, sys, time; subprocess.run([sys.executable, '-c', {burn!r}]); time.sleep(600)"
    living = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {burn + chr(10)!r} + 'time.sleep(600)'])"
    for code in (ended, living):
        with a_child(tmp_path, code) as child:
            wait_for_processor_time(child, 0.3)
    assert cpu_seconds([]) == 0


def wait_for_processor_time(child: Child, seconds: float) -> None:
    end = time.monotonic() + LONG
    while cpu_seconds(child.roots()) < seconds:
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_step_that_stands_still_is_named_with_its_own_log(tmp_path: Path) -> None:
    with a_child(tmp_path, "import time; time.sleep(600)", reports=True) as child:
        assert child.process is not None
        child.process.send_signal(signal.SIGSTOP)
        with pytest.raises(ChildError, match=r"^The step schema stands still: .*setup\.log"):
            wait_for_step(child, "schema", patience=SOON)


def test_a_step_is_over_when_it_is_reported(tmp_path: Path) -> None:
    with a_child(tmp_path, "print('schema', flush=True); input()", reports=True) as child:
        wait_for_step(child, "schema", patience=LONG)


def test_a_sentence_for_people_stands_for_itself(tmp_path: Path) -> None:
    """A database from before 1.0, for one."""
    code = "import sys; print('Begin with an empty home.', file=sys.stderr); sys.exit(2)"
    with a_child(tmp_path, code, reports=True) as child, pytest.raises(DemoError) as refusal:
        wait_for_step(child, "schema", patience=LONG)
    assert str(refusal.value) == "Begin with an empty home."


def test_a_step_that_fails_says_why_and_where_all_of_it_is(tmp_path: Path) -> None:
    with (
        a_child(tmp_path, "raise ValueError('no such month')") as child,
        pytest.raises(
            DemoError, match=r"^The step demo data failed: ValueError: no such month \(all of it: .*log\)"
        ),
    ):
        wait_for_end(child, "demo data", patience=LONG)


def test_a_web_that_does_nothing_is_named_with_its_own_log(tmp_path: Path) -> None:
    with (
        a_child(tmp_path, "import time; time.sleep(600)", name="web") as child,
        pytest.raises(ChildError, match=r"it answers nothing; .*web\.log may say why"),
    ):
        Web(child, a_free_port()).wait(patience=SOON)


class Unready(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(503)
        self.end_headers()
        self.wfile.write(b'{"redis": "down"}')

    def log_message(self, *_: object) -> None:
        pass


def test_a_web_that_is_never_ready_is_not_kept_alive_by_being_asked(tmp_path: Path) -> None:
    """Each question makes it work and log, which is no sign that anything will change."""
    chatty = "import time\nwhile True: print('asked', flush=True); time.sleep(0.05)"
    with (
        ThreadingHTTPServer(("127.0.0.1", 0), Unready) as server,
        a_child(tmp_path, chatty, name="web") as child,
    ):
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with pytest.raises(ChildError, match=r'it says 503 \{"redis": "down"\}'):
            Web(child, server.server_address[1]).wait(patience=SOON)
        server.shutdown()


def test_a_web_that_ends_is_not_waited_for(tmp_path: Path) -> None:
    with (
        a_child(tmp_path, "raise SystemExit('no such module')", name="web") as child,
        pytest.raises(ChildError, match=r"The web does not start: no such module \(see .*web\.log\)"),
    ):
        Web(child, a_free_port()).wait(patience=LONG)


def test_steps_are_plain_lines_with_their_times() -> None:
    stream, clock = io.StringIO(), iter((1.0, 4.25, 5.0))
    steps = Steps(stream, clock=lambda: next(clock))
    with steps.step("schema"):
        assert stream.getvalue() == "schema       "
    with pytest.raises(ValueError, match="broken"), steps.step("demo data"):
        raise ValueError("broken")
    assert stream.getvalue() == "schema       3.2 s\ndemo data    \n"


def test_a_server_that_hangs_in_its_start_is_given_up_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Movement.__init__, "__defaults__", (SOON, time.monotonic))
    monkeypatch.setattr(Redis, "command", lambda _: ["sleep", "600"])
    server = Redis(tmp_path)
    launched: list[subprocess.Popen[bytes]] = []
    plain = subprocess.Popen

    def launch(*command: object, **options: object) -> subprocess.Popen[bytes]:
        launched.append(plain(*command, **options))  # type: ignore[call-overload]
        return launched[-1]

    monkeypatch.setattr(subprocess, "Popen", launch)
    with pytest.raises(EmbeddedError, match=r"The embedded redis does not start: .*redis/log"), server:
        pass
    launched[-1].kill()
    launched[-1].wait()
