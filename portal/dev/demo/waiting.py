"""Waiting for a child, as long as something of it still moves."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from portal.dev.demo import DemoError
from portal.dev.demo.setup import REFUSAL
from portal.dev.embedded.host import is_full
from portal.instance import full_disk
from portal.ops.movement import PATIENCE, Movement, Reading, cpu_seconds, log_size
from portal.ops.processes import Child, ChildError

Roots = Callable[[], Iterable[int]]
"""Processes that work for a child without descending from it, as those of the database do."""


def nobody() -> Iterable[int]:
    return ()


def wait_for_step(child: Child, step: str, *, others: Roots = nobody, patience: float = PATIENCE) -> None:
    """Until the child has reported the step; raises DemoError with its reason if it ends before."""
    _wait(child, lambda: step in child.lines(), step, others, patience)


def wait_for_end(child: Child, step: str, *, others: Roots = nobody, patience: float = PATIENCE) -> None:
    """Until the child has ended well."""
    _wait(child, lambda: _ended_well(child), step, others, patience)


def _wait(child: Child, is_done: Callable[[], bool], step: str, others: Roots, patience: float) -> None:
    start = log_size(child.log)
    movement = Movement(lambda: _reading(child, others), patience)
    while not is_done():
        if not child.running and not is_done():
            raise DemoError(_failure(child, step, start))
        if movement.has_ended():
            raise ChildError(
                f"The step {step} stands still: for {patience:g} s its process has done nothing ({child.log})."
            )
        time.sleep(0.05)


def _reading(child: Child, others: Roots) -> Reading:
    return Reading(cpu_seconds([*child.roots(), *others()]), log_size(child.log))


def _ended_well(child: Child) -> bool:
    return child.process is not None and child.process.poll() == 0


def _failure(child: Child, step: str, start: int) -> str:
    text = child.log.read_bytes()[start:].decode(errors="replace")
    if is_full(child.log.parent, text):
        return full_disk(child.log.parent)
    if child.process is not None and child.process.returncode == REFUSAL:
        return child.last_words()
    return f"The step {step} failed: {child.last_words()} (all of it: {child.log})"


@dataclass
class Web:
    """The web process, as it is seen by whoever waits for a page."""

    child: Child
    port: int
    answer: str = ""  # to the latest question; '': none

    def wait(self, *, patience: float = PATIENCE) -> None:
        """Until a page could be served; raises ChildError that names the web's own log."""
        movement = Movement(self._reading, patience)
        while not self._is_ready():
            if not self.child.running:
                raise ChildError(f"The web does not start: {self.child.last_words()} (see {self.child.log})")
            if movement.has_ended():
                state = f"it says {self.answer}" if self.answer else "it answers nothing"
                raise ChildError(
                    f"The web is not ready on port {self.port}, and nothing has moved for {patience:g} s: "
                    f"{state}; {self.child.log} may say why."
                )
            time.sleep(0.1)

    def _is_ready(self) -> bool:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(f"http://127.0.0.1:{self.port}/readyz", timeout=5) as response:
                return bool(response.status == 200)
        except urllib.error.HTTPError as error:
            self.answer = f"{error.code} {error.read(200).decode(errors='replace')}"
        except OSError:
            self.answer = ""
        return False

    def _reading(self) -> Reading:
        """Once it answers, only another answer is a movement: to be asked makes it work and log."""
        if self.answer:
            return Reading(answer=self.answer)
        return Reading(cpu_seconds(self.child.roots()), log_size(self.child.log))
