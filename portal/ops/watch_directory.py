"""A directory that a cluster drops files into: each complete one is taken in once, then put away.

A file stays where it is until it was read, so a kill at any point leaves it there and the next look reads
it again, which changes nothing. Afterwards it lies in `done`, or in `refused` beside a `.reason`.
"""

from __future__ import annotations

import fcntl
import os
import re
import signal
import stat
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from types import FrameType

from django.db import DataError, InterfaceError, OperationalError, connection

from billing.rating.ingest import CUT_OFF
from clusters.connectors.base import BadRow, ConnectorError, Row
from portal.excerpt import excerpt
from portal.ops.cli import Answer, BadInputError, RefusedError

LOOK = 2  # seconds between two looks into the directory
EMPTY = 600  # seconds that an empty file may still be one that was just begun
UNFINISHED = (".part", ".partial", ".filepart", ".tmp", ".swp", "~")  # ends of names that are not final yet
COUNTS = ("read", "new", "unchanged", "revised", "quarantined")
LOCK = ".clustertab.lock"
AS_OF = re.compile(r"as-of-(\d{4}-\d\d-\d\dT)(\d\d):?(\d\d):?(\d\d)Z")

Take = Callable[[Path], Answer]
Seen = tuple[int, int, int]  # inode, size, mtime: what tells one state of a file from another


class StopError(Exception):
    """Somebody asked us to end."""


class Stop:
    """SIGTERM and Ctrl-C end the work after the batch in hand."""

    def __init__(self) -> None:
        self._event = Event()

    def __bool__(self) -> bool:
        return self._event.is_set()

    def wait(self, seconds: int) -> None:
        self._event.wait(seconds)

    def check(self) -> None:
        """Raise StopError once it was asked for; called between two batches."""
        if self:
            raise StopError("Stopped before the end of the file, which stays where it is.")

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        """Within the block the signals ask to stop instead of ending the process."""

        def ask(_number: int, _frame: FrameType | None) -> None:
            self._event.set()

        before = {number: signal.signal(number, ask) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class Follower:
    """One directory. `settle`: for how many seconds a file must not have changed to count as complete.

    `take` imports one file and answers as for a single one; `say` tells a person, one line at a time.
    """

    def __init__(
        self, directory: Path, *, take: Take, say: Callable[[str], None], settle: int, stop: Stop
    ) -> None:
        self.directory, self.take, self.say, self.settle, self.stop = directory, take, say, settle, stop
        self.tally: Counter[str] = Counter()
        self.left: dict[str, str] = {}  # files that were not put away, with why
        self.stuck: dict[str, Seen] = {}  # of those the ones that were read, but cannot be moved
        self._states: dict[str, tuple[Seen, float]] = {}  # by name: its state, and since when
        self._links: set[str] = set()  # names of symbolic links that it was said of
        self._trouble = ""  # what was said last of the directory or database

    def run(self, *, once: bool) -> None:
        """Look until it was asked to stop or, `once`, twice: what did not settle in between waits for the next run.

        Raises RefusedError `once` if the directory or the database fails; else both are waited for.
        """
        if once:
            self.look(final=True)
            if self.left and not self.stop:
                self.stop.wait(self.settle)
                self.look(final=True)
            return
        while not self.stop:
            self.look(final=False)
            self.stop.wait(LOOK)

    def look(self, *, final: bool) -> None:
        """Take in what is complete, in the order of the names."""
        try:
            self._look()
        except StopError as stopped:
            self.say(str(stopped))
        except (InterfaceError, OperationalError) as error:
            connection.close()
            self._fails(
                f"The database does not answer: {str(error).strip().partition(chr(10))[0]}.", final=final
            )
        except OSError as error:
            self._fails(f"{self.directory} cannot be read: {error.strerror or error}.", final=final)
        else:
            self._trouble = ""

    def _fails(self, sentence: str, *, final: bool) -> None:
        if final:
            raise RefusedError(sentence)
        if sentence != self._trouble:
            self.say(f"{sentence} Trying again.")
        self._trouble = sentence

    def _look(self) -> None:
        self.left = {}
        names = [path.name for path in self.directory.iterdir()]
        there = {name: seen for name in names if (seen := self._state(name)) is not None}
        self._states = {name: state for name, state in self._states.items() if name in there}
        for name in sorted(there):
            self.stop.check()
            self._consider(name, there[name])

    def _state(self, name: str) -> Seen | None:
        """None for what is no file of ours: hidden, not final, no regular file, or gone.

        A link is not followed: whoever may write here would have any file read that we may read.
        """
        if name.startswith(".") or name.endswith(UNFINISHED):
            return None
        try:
            path_stat = (self.directory / name).lstat()
        except FileNotFoundError:
            return None
        if stat.S_ISLNK(path_stat.st_mode) and name not in self._links:
            self._links.add(name)
            self.say(f"{name} is a symbolic link, which is not followed: put the file itself here.")
        if not stat.S_ISREG(path_stat.st_mode):
            return None
        return (path_stat.st_ino, path_stat.st_size, path_stat.st_mtime_ns)

    def _consider(self, name: str, seen: Seen) -> None:
        if self.stuck.get(name) == seen:
            self.left[name] = "it was read, but cannot be put away"
            return
        before, since = self._states.get(name, (None, 0.0))
        if before != seen:
            since = time.monotonic()
            self._states[name] = (seen, since)
        begun = not seen[1] and time.time() - seen[2] / 10**9 < EMPTY
        if begun or time.monotonic() - since < self.settle:
            self.left[name] = "it may still be written"
            return
        self._take(name, seen)

    def _take(self, name: str, seen: Seen) -> None:
        path = self.directory / name
        try:
            answer = self.take(path)
        except ConnectorError as error:
            if error.retry:
                self._again(name, str(error))
            elif self._state(name) is not None:
                self._put_away(path, seen, "refused", str(error))
        except RefusedError as error:
            self._put_away(path, seen, "refused", str(error))
        except (DataError, OverflowError, UnicodeEncodeError) as error:
            sentence = f"Something in it is too long, too large or no text: {excerpt(error)}"
            self._put_away(path, seen, "refused", sentence)
        else:
            if self._state(name) != seen:
                self._again(name, f"{name} changed while it was read: it is read again.")
                return
            self.say(answer.text)
            self.tally.update({count: answer.data[count] for count in COUNTS})
            self._put_away(path, seen, "done", "")

    def _again(self, name: str, sentence: str) -> None:
        self.say(sentence)
        self._states.pop(name, None)
        self.left[name] = "it changed while it was read"

    def _put_away(self, path: Path, seen: Seen, folder: str, reason: str) -> None:
        """The reason is written first: a kill before the move only makes it be written again."""
        try:
            (self.directory / folder).mkdir(exist_ok=True)
            target = _free(self.directory / folder / path.name)
            if reason:
                self.say(f"{path.name} is refused: {reason}")
                target.with_name(f"{target.name}.reason").write_text(f"{reason}\n")
            path.rename(target)
        except OSError as error:
            self.stuck[path.name] = seen
            self.left[path.name] = f"it cannot be moved into {folder}: {error.strerror or error}"
            self.say(
                f"{path.name} cannot be moved into {folder}: {error.strerror or error}. Move it by hand."
            )
        else:
            self.tally[folder] += 1
            self._states.pop(path.name, None)


def as_of(name: str) -> str | None:
    """How far the source had looked, where the name says so: `lab.as-of-2026-03-01T020000Z.sacct`."""
    match = AS_OF.search(name)
    return f"{match[1]}{match[2]}:{match[3]}:{match[4]}Z" if match else None


def whole(rows: Iterable[Row]) -> Iterator[Row]:
    """The rows of a file whose name vouches for it. Raises ConnectorError at its end if that is torn off."""
    torn = False
    for row in rows:
        torn = isinstance(row, BadRow) and row.code in CUT_OFF
        yield row
    if torn:
        raise ConnectorError("file-torn", retry=False)


def _free(path: Path) -> Path:
    """The path, with a number behind it where another file of that name lies already."""
    free, number = path, 1
    while free.exists():
        number += 1
        free = path.with_name(f"{path.name}.{number}")
    return free


@contextmanager
def alone(directory: Path, cluster: str) -> Iterator[None]:
    """Nobody else follows this directory until the block or the process ends.

    Raises BadInputError where it is no directory that files can be moved in, RefusedError where somebody does.
    """
    try:
        for folder in ("done", "refused"):
            (directory / folder).mkdir(exist_ok=True)
        next(directory.iterdir())
        file = (directory / LOCK).open("a+")
    except FileNotFoundError as error:
        raise BadInputError(f"There is no directory {directory}.") from error
    except OSError as error:
        raise BadInputError(
            f"{directory} cannot be followed: {error.strerror or error}. Files must be readable there, and movable "
            "into its directories done and refused."
        ) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            who = file.read(300).strip() or "another process"
            raise RefusedError(f"{directory} is followed already, by {who}.") from error
        file.seek(0)
        file.truncate()
        file.write(f"process {os.getpid()} for {cluster}\n")
        file.flush()
        yield


def summary(follower: Follower, *, cluster: str, once: bool) -> Answer:
    """What became of the files; code 1 `once` if one was refused or could not be put away."""
    done, refused = follower.tally["done"], follower.tally["refused"]
    data = {
        "cluster": cluster,
        "directory": str(follower.directory),
        "files": done,
        "refused": refused,
        **{count: follower.tally[count] for count in COUNTS},
        "left": [{"file": name, "reason": why} for name, why in follower.left.items()],
    }
    text = f"{follower.directory} → {cluster}: {done:,} files taken in, {refused:,} refused."
    lines = [text, *(f"{name} stays: {why}." for name, why in follower.left.items())]
    return Answer(data, "\n".join(lines), 1 if once and (refused or follower.stuck) else 0)
