"""What the start is at, for whoever waits: a line a step with the time that it took."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TextIO


@dataclass(frozen=True)
class Steps:
    """Plain text for terminals and files alike. `./run` writes the first line, that of the environment, likewise."""

    stream: TextIO
    clock: Callable[[], float] = time.monotonic

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """The name when it begins, the seconds when it is done; nothing behind the name of one that fails."""
        begin = self.clock()
        self._write(f"{name:<11}  ")
        try:
            yield
        except BaseException:
            self._write("\n")
            raise
        self._write(f"{self.clock() - begin:.1f} s\n")

    def _write(self, text: str) -> None:
        self.stream.write(text)
        self.stream.flush()
