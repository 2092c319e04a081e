"""The jobs of an answer, each read as soon as its bytes are there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from clusters.connectors.slurm import decode
from clusters.connectors.slurm.window_splitting import Splitter, TooLongError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
BLOCK = 2**18  # bytes that are cut at once


class Pieces(Generic[T]):
    """Takes bytes, gives each job to `give`. What is wrong is told by `end`."""

    def __init__(self, reader: decode.Reader[T], give: Callable[[T], None]) -> None:
        self._reader = reader
        self._give = give
        self._splitter = Splitter()
        self._waiting: list[bytes] = []
        self._size = 0
        self._wrong: ValueError | None = None

    @property
    def around(self) -> bytes:
        """The answer without its jobs."""
        return self._splitter.around

    def take(self, piece: bytes) -> bool:
        """Whether more is wanted."""
        self._waiting.append(piece)
        self._size += len(piece)
        return self._size < BLOCK or self._cut()

    def end(self) -> ValueError | None:
        """There is no more: None if it was one whole JSON text with jobs of the known shape, as far as they go."""
        if self._wrong is None and self._cut():
            self._splitter.end()
            if self._splitter.rest or self._splitter.texts > 1:
                self._wrong = decode.NotJsonError("The body is no JSON, or it breaks off.")
            elif self._splitter.stray:
                self._wrong = decode.OtherShapeError("Not every job is an object")
        return self._wrong

    def _cut(self) -> bool:
        block = b"".join(self._waiting)
        self._waiting.clear()
        self._size = 0
        try:
            for job in self._splitter.feed(block):
                self._give(self._reader.read(job))
        except TooLongError as error:
            self._wrong = decode.OtherShapeError(str(error))
        except (decode.NotJsonError, decode.OtherShapeError) as error:
            self._wrong = error
        return self._wrong is None
