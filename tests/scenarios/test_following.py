"""Op lets a cluster drop its accounting into a directory, and looks there once a week."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from django.core.management.base import CommandError
from django.db import OperationalError

from billing.models import RatedJob
from clusters.models import Cluster, Pull, Quarantined, UsageRecord
from portal.ops import watch_directory
from portal.ops.cli import Answer, RefusedError
from portal.ops.management.commands import import_usage
from portal.ops.watch_directory import Follower, Stop, Take
from tests.builders import at
from tests.scenarios.test_commands_operator import answer_of, file, gpu1, row, text_of

pytestmark = pytest.mark.django_db
__all__ = ["gpu1"]  # a fixture

FOLLOW = ("--once", "--settle", "0")


def names(folder: Path) -> list[str]:
    return sorted(
        path.name for path in folder.iterdir() if path.is_file() and path.name != watch_directory.LOCK
    )


def follow(folder: Path, *options: str) -> tuple[dict[str, object], int]:
    return answer_of("import_usage", "gpu1", "--follow", folder, *(options or FOLLOW))


def import_one(path: Path) -> Answer:
    options = {"follow": path.parent, "as_of": None, "columns": None, "delimiter": "|", "format": "sacct"}
    return import_usage.import_file(Cluster.objects.get(), path, options)


class Watched(Follower):
    """A follower in this process, look by look; `output` is what it said."""

    def __init__(self, folder: Path, take: Take = import_one, *, settle: int = 0) -> None:
        self.output: list[str] = []
        super().__init__(folder, take=take, say=self.output.append, settle=settle, stop=Stop())


def test_each_file_is_taken_in_once_and_put_away(gpu1: Cluster, tmp_path: Path) -> None:
    file(tmp_path, row(1, end="Unknown"), name="2026-03-02T11.sacct")
    file(tmp_path, row(1), row(2), name="2026-03-02T12.sacct")
    answer, code = follow(tmp_path)
    assert (answer["files"], answer["refused"], answer["new"], answer["revised"], code) == (2, 0, 2, 1, 0)
    assert names(tmp_path) == []
    assert names(tmp_path / "done") == ["2026-03-02T11.sacct", "2026-03-02T12.sacct"]
    assert list(Pull.objects.order_by("pk").values_list("source", flat=True)) == names(tmp_path / "done")
    gpu1.refresh_from_db()
    assert gpu1.complete_through == at("2026-03-02 11:00")
    assert RatedJob.objects.count() == 2

    answer, code = follow(tmp_path)
    assert (answer["files"], answer["read"], code) == (0, 0, 0)


def test_a_name_that_comes_again_overwrites_nothing(gpu1: Cluster, tmp_path: Path) -> None:
    for job in (1, 2, 3):
        file(tmp_path, row(job), name="usage.sacct")
        follow(tmp_path)
    assert names(tmp_path / "done") == ["usage.sacct", "usage.sacct.2", "usage.sacct.3"]
    assert UsageRecord.objects.count() == 3


def test_a_bad_file_is_refused_with_its_sentence_and_the_next_is_read(
    gpu1: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a-notice.txt").write_text("Dear Op,\nthe file is on its way.\n")
    (tmp_path / "b.sacct.gz").write_bytes(b"\x1f\x8b\x08\x00 cut")
    file(tmp_path, row(1), name="c.sacct")
    answer, code = follow(tmp_path)
    assert (answer["files"], answer["refused"], code) == (1, 2, 1)
    assert names(tmp_path / "refused") == [
        "a-notice.txt", "a-notice.txt.reason", "b.sacct.gz", "b.sacct.gz.reason",
    ]  # fmt: skip
    assert "broken or cut gzip file" in (tmp_path / "refused" / "b.sacct.gz.reason").read_text()
    assert "b.sacct.gz is refused: " in capsys.readouterr().err
    assert UsageRecord.objects.count() == 1


def test_a_torn_file_leaves_the_watermark_and_its_row_aside(gpu1: Cluster, tmp_path: Path) -> None:
    whole = file(tmp_path, row(1), row(2), name="torn.sacct")
    whole.write_text(whole.read_text()[:-40])
    answer, code = follow(tmp_path)
    assert (answer["files"], answer["new"], answer["quarantined"], code) == (1, 1, 1, 0)
    assert Quarantined.objects.get().code == "truncated"
    gpu1.refresh_from_db()
    assert gpu1.complete_through is None
    file(tmp_path, row(1), row(2), name="whole.sacct")
    follow(tmp_path)
    gpu1.refresh_from_db()
    assert gpu1.complete_through == at("2026-03-02 11:00")


def test_a_torn_file_whose_name_says_how_far_it_reaches_is_refused(gpu1: Cluster, tmp_path: Path) -> None:
    whole = file(tmp_path, row(1), row(2), name="lab.as-of-2026-03-02T180000Z.sacct")
    whole.write_text(whole.read_text()[:-40])
    assert follow(tmp_path)[0]["refused"] == 1
    (reason,) = (tmp_path / "refused").glob("*.reason")
    assert reason.read_text().startswith("It ends in a torn line, though its name says how far it reaches")
    gpu1.refresh_from_db()
    assert gpu1.complete_through is None


def test_a_name_may_say_how_far_the_source_had_looked(gpu1: Cluster, tmp_path: Path) -> None:
    file(tmp_path, row(1), name="lab.as-of-2026-03-02T180000Z.sacct")
    follow(tmp_path)
    gpu1.refresh_from_db()
    assert gpu1.complete_through == at("2026-03-02 18:00")
    for name in ("lab.as-of-2100-01-01T000000Z.sacct", "lab.as-of-2026-02-30T00:00:00Z.sacct"):
        file(tmp_path, row(1), name=name)
    assert follow(tmp_path)[0]["refused"] == 2
    reasons = [path.read_text() for path in sorted((tmp_path / "refused").glob("*.reason"))]
    assert "is not a moment" in reasons[0]
    assert reasons[1] == ("Nobody can have looked as far as 2100-01-01T00:00:00Z: it lies in the future.\n")
    gpu1.refresh_from_db()
    assert gpu1.complete_through == at("2026-03-02 18:00")


def test_what_is_still_written_waits(gpu1: Cluster, tmp_path: Path) -> None:
    for name in (".hidden.sacct", "a.sacct.part", "b.tmp", "c.sacct~"):
        file(tmp_path, row(1), name=name)
    (tmp_path / "just-begun.sacct").touch()
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    answer, code = follow(tmp_path)
    assert (answer["files"], answer["refused"], code) == (0, 0, 0)
    assert answer["left"] == [{"file": "just-begun.sacct", "reason": "it may still be written"}]
    assert len(names(tmp_path)) == 5
    os.utime(tmp_path / "just-begun.sacct", (0, 0))  # empty since long ago: nobody writes it any more
    assert follow(tmp_path)[0]["refused"] == 1


def test_a_link_is_not_followed_and_op_hears_of_it_once(gpu1: Cluster, tmp_path: Path) -> None:
    inbox, elsewhere = tmp_path / "inbox", tmp_path / "elsewhere"
    inbox.mkdir()
    elsewhere.mkdir()
    (inbox / "usage.sacct").symlink_to(file(elsewhere, row(1)))
    (inbox / "gone.sacct").symlink_to(elsewhere / "nowhere")
    by = Watched(inbox)
    for _ in range(3):
        by.look(final=False)
    assert sorted(by.output) == [
        f"{name} is a symbolic link, which is not followed: put the file itself here."
        for name in ("gone.sacct", "usage.sacct")
    ]
    assert (UsageRecord.objects.count(), by.left, (inbox / "usage.sacct").is_symlink()) == (0, {}, True)


def test_a_file_that_grows_is_not_complete(gpu1: Cluster, tmp_path: Path) -> None:
    by = Watched(tmp_path, settle=3600)
    path = file(tmp_path, row(1))
    by.look(final=False)
    by.look(final=False)
    assert by.left == {"march.sacct": "it may still be written"}
    by.settle = 0
    file(tmp_path, row(1), row(2))
    by.look(final=False)
    assert not path.exists()
    assert UsageRecord.objects.count() == 2


def test_a_file_that_appears_during_a_run_is_found_by_the_next_look(gpu1: Cluster, tmp_path: Path) -> None:
    by = Watched(tmp_path)
    real = import_one

    def take(path: Path) -> Answer:
        if path.name == "a.sacct":
            file(tmp_path, row(9), name="0.sacct")
        return real(path)

    by.take = take
    file(tmp_path, row(1), name="a.sacct")
    by.look(final=False)
    assert names(tmp_path) == ["0.sacct"]
    by.look(final=False)
    assert names(tmp_path) == []
    assert UsageRecord.objects.count() == 2


def test_a_file_that_changes_while_it_is_read_is_read_again(gpu1: Cluster, tmp_path: Path) -> None:
    by = Watched(tmp_path)
    real = import_one

    def take(path: Path) -> Answer:
        answer = real(path)
        if UsageRecord.objects.count() == 1:
            file(tmp_path, row(1), row(2))
        return answer

    by.take = take
    file(tmp_path, row(1))
    by.look(final=False)
    assert names(tmp_path) == ["march.sacct"]
    assert "changed while it was read" in by.output[-1]
    by.look(final=False)
    assert names(tmp_path / "done") == ["march.sacct"]
    assert UsageRecord.objects.count() == 2


def test_killed_between_the_import_and_the_move_it_reads_the_file_again_and_nothing_changes(
    gpu1: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class KilledError(BaseException):
        pass

    def killed(*_: object) -> None:
        raise KilledError

    file(tmp_path, row(1), row(2))
    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", killed)
        with pytest.raises(KilledError):
            follow(tmp_path)
    before = list(UsageRecord.objects.values().order_by("pk"))
    assert names(tmp_path) == ["march.sacct"]
    answer, code = follow(tmp_path)
    assert (answer["files"], answer["new"], answer["unchanged"], code) == (1, 0, 2, 0)
    assert list(UsageRecord.objects.values().order_by("pk")) == before


def test_what_cannot_be_moved_is_read_once_and_said_once(
    gpu1: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    by = Watched(tmp_path)
    file(tmp_path, row(1))
    monkeypatch.setattr(Path, "rename", full)
    for _ in range(3):
        by.look(final=False)
    assert by.output[1:] == [
        "march.sacct cannot be moved into done: No space left on device. Move it by hand."
    ]
    assert Pull.objects.count() == 1
    assert by.left == {"march.sacct": "it was read, but cannot be put away"}


def test_a_directory_that_goes_away_is_waited_for(gpu1: Cluster, tmp_path: Path) -> None:
    folder, away = tmp_path / "in", tmp_path / "away"
    folder.mkdir()
    by = Watched(folder)
    file(folder, row(1))
    folder.rename(away)
    by.look(final=False)
    by.look(final=False)
    assert by.output == [f"{folder} cannot be read: No such file or directory. Trying again."]
    away.rename(folder)
    by.look(final=False)
    assert UsageRecord.objects.count() == 1


def test_a_database_that_is_away_refuses_no_file(gpu1: Cluster, tmp_path: Path) -> None:
    def take(_: Path) -> Answer:
        raise OperationalError("connection refused")

    file(tmp_path, row(1))
    by = Watched(tmp_path, take)
    by.look(final=False)
    assert by.output == ["The database does not answer: connection refused. Trying again."]
    assert names(tmp_path) == ["march.sacct"]
    with pytest.raises(RefusedError, match="database"):
        by.look(final=True)


def test_what_cannot_be_followed_is_code_2(
    gpu1: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    march = file(tmp_path, row(1))
    assert follow(tmp_path / "nowhere")[1] == 2
    assert follow(march)[1] == 2
    for words in (
        ("gpu9", "--follow", tmp_path),
        ("gpu1", march, "--follow", tmp_path),
        ("gpu1",),
        ("gpu1", march, "--once"),
        ("gpu1", march, "--settle", "3"),
        ("gpu1", "--follow", tmp_path, "--as-of", "2026-04-01"),
        ("gpu1", "--follow", tmp_path, "--settle", "-1"),
    ):
        answer, code = answer_of("import_usage", *words)
        assert (code, set(answer)) == (2, {"error", "errors"}), words

    def unreadable(_: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", unreadable)
    answer, code = follow(tmp_path)
    assert code == 2
    assert "cannot be followed: Permission denied. Files must be readable there" in str(answer["error"])


def test_a_directory_is_followed_by_one_at_a_time(gpu1: Cluster, tmp_path: Path) -> None:
    with watch_directory.alone(tmp_path, "gpu1"):
        answer, code = follow(tmp_path)
        assert (code, answer["error"]) == (
            1, f"{tmp_path} is followed already, by process {os.getpid()} for gpu1.",
        )  # fmt: skip
    assert follow(tmp_path)[1] == 0
    with pytest.raises(CommandError):
        text_of("import_usage", "gpu1")
