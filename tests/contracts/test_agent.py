"""The agent of `deploy/agent/`: what it reads, keeps and sends, and how it takes what it is answered."""

from __future__ import annotations

import ast
import fcntl
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from clusters.connectors.base import BadRow, UsageFact
from clusters.connectors.sacct.single_rows import SingleRows
from clusters.connectors.sacct.text_export import open_export
from tests.contracts.agent_portal import AGENT, HEADER, a_config, agent, jobs, portal
from tests.contracts.sacct_exports import COLUMNS, LOS_ANGELES, UTC, row
from tests.contracts.test_sacct_mangled import EDITS, EXPORT, HEADER_END
from tests.tiers import examples


def once(config: Path, monkeypatch: pytest.MonkeyPatch, *options: str) -> int:
    monkeypatch.setattr(sys, "argv", ["agent", "--config", str(config), "--once", *options])
    return int(agent.main())


@pytest.fixture(autouse=True)
def _signals_of_the_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent.signal, "signal", lambda *_: None)
    monkeypatch.setattr(agent.os, "umask", lambda _: None)


class TestOneFile:
    def test_it_is_read_by_python_3_6_and_needs_nothing_but_its_library(self) -> None:
        tree = ast.parse(AGENT.read_text(), feature_version=(3, 6))
        imported = {
            alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
        }
        newer = {"zoneinfo", "dataclasses", "contextvars", "tomllib", "graphlib"}
        assert not [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        assert {name.partition(".")[0] for name in imported} <= set(sys.stdlib_module_names) - newer

    def test_the_example_of_its_configuration_names_every_setting_with_its_default(self) -> None:
        lines = (AGENT.parent / "agent.conf").read_text().splitlines()
        section, described = "", {}
        for line in lines:
            text = line.removeprefix("# ")
            if text.startswith("["):
                section = text.strip("[]")
            elif "=" in text:
                name, _, value = text.partition(" = ")
                described[section, name] = value
        known = {(section, name) for section, values in agent.DEFAULTS.items() for name in values}
        assert described.keys() == known
        for (section, name), value in described.items():
            default = agent.DEFAULTS[section][name]
            assert default in {"", value}, name


class TestRows:
    @given(edits=EDITS)
    @settings(max_examples=examples(60, 3000), deadline=None)
    def test_each_row_is_read_as_in_a_file(self, edits: list[tuple[float, int, bytes]]) -> None:
        body = EXPORT[HEADER_END:]
        for where, cut, piece in edits:
            at = int(where * len(body))
            body = body[:at] + piece + body[at + cut :]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "export.sacct"
            path.write_bytes(EXPORT[:HEADER_END] + body)
            in_file = list(open_export(path, zone=LOS_ANGELES).rows())
            single = SingleRows(LOS_ANGELES)
            with path.open("rb") as file:
                lines = agent.lines_of(file)
                header = next(lines)
                alone = [single.read(header, text) for text in agent.rows_of(lines, len(COLUMNS))]
        assert counts(alone) == counts(in_file)

    def test_a_step_is_no_run(self) -> None:
        step = SingleRows(UTC).read(HEADER, row(JobIDRaw="7.batch") + "\n")
        assert isinstance(step, BadRow)
        assert step.code == "job-step"


def counts(rows: list[Any]) -> Counter[object]:
    return Counter(
        row if isinstance(row, UsageFact) else row.code
        for row in rows
        if isinstance(row, UsageFact) or row.code != "job-step"
    )


class TestReading:
    def test_a_changed_row_is_sent_again_and_an_open_one_at_each_look(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with portal() as requests:
            config = a_config(tmp_path, requests.url)
            running = row(JobIDRaw="2", State="RUNNING", End="Unknown")
            for elapsed in ("3600", "3600", "3500"):
                text = "\n".join([HEADER, row(JobIDRaw="1", ElapsedRaw=elapsed), running, ""])
                (tmp_path / "in" / "a.sacct").write_text(text)
                assert once(config, monkeypatch) == 0
        sent = [[event["id"].partition("@")[0] for event in events] for events in requests.pushed]
        assert sent == [["1", "2"], ["2"], ["1", "2"]]
        times = [event["time"] for events in requests.pushed for event in events]
        assert times == sorted(times)

    def test_the_name_of_a_file_says_how_far_it_goes(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with portal() as requests:
            config = a_config(tmp_path, requests.url)
            (tmp_path / "in" / "lab.as-of-2026-01-31T000000Z.sacct").write_text(jobs(1))
            (tmp_path / "in" / "lab.as-of-2026-02-01T000000Z.sacct").write_text(jobs(2)[:-1])  # cut off
            once(config, monkeypatch)
        through = [
            event["data"]["through"] for event in requests.pushed[0] if event["type"].endswith("complete")
        ]
        assert through == ["2026-01-31T00:00:00Z"]

    @pytest.mark.parametrize(
        "content", [b"", b"Name|Size\n1|2\n", b"\x1f\x8b broken", b"\x1f\x8b\x08\x00"], ids=repr
    )
    def test_a_file_that_is_none_stops_no_other(
        self,
        content: bytes,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        with portal() as requests:
            config = a_config(tmp_path, requests.url)
            (tmp_path / "in" / "a.sacct").write_bytes(content)
            (tmp_path / "in" / "b.sacct").write_text(jobs(1))
            for name in ("c.part", ".d"):
                (tmp_path / "in" / name).write_text(jobs(3))
            assert once(config, monkeypatch) == 0
        assert [len(events) for events in requests.pushed] == [1]
        assert ("a.sacct is refused" in capsys.readouterr().err) == bool(content)

    def test_a_full_spool_stops_reading_until_it_is_sent(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(agent, "CHUNK", 50)
        (tmp_path / "state").mkdir()
        with portal() as requests:
            config = a_config(tmp_path, requests.url)
            settings = agent.read_config(str(config))
            spool = agent.Spool(str(tmp_path / "state"))
            spool.most = 400_000
            (tmp_path / "in" / "a.sacct").write_text(jobs(1000))
            collector = agent.Collector(settings, spool, None)
            sender = agent.Sender(agent.Portal(settings["portal"]), spool)
            assert not collector.collect()
            assert "spool is full" in capsys.readouterr().err
            for _ in range(10):
                assert sender.send(time.monotonic() + 60) == 0
                spool.db.execute("VACUUM")
                if collector.collect():
                    break
                spool.most += 200_000  # what is known of rows stays, and is small
            sender.send(time.monotonic() + 60)
        ids = [event["id"] for events in requests.pushed for event in events]
        assert (len(ids), len(set(ids))) == (1000, 1000)


class TestRefusals:
    @pytest.mark.parametrize(
        ("change", "sentence"),
        [
            (lambda text: text.replace("[directory]", "[folder]"), "[folder] has no setting"),
            (lambda text: text + "[sacct]\n", "say where usage comes from: [sacct], [directory] or [files]"),
            (lambda text: text.replace("settle_seconds = 0", "settle_seconds = soon"), "whole number"),
            (lambda text: text.replace("cluster =", "kluster ="), "no setting 'kluster'"),
            (lambda text: text.replace("cluster = own", ""), "needs cluster"),
            (
                lambda text: text.replace("http://127.0.0.1:1", "http://billing.example"),
                "begins with https://",
            ),
            (lambda text: text.replace("http://127.0.0.1:1", "billing.example"), "an address such as"),
            (lambda text: text.replace("cluster = own", "cluster = own\nca_file = /none"), "ca_file"),
            (
                lambda text: text.replace("cluster = own", "cluster = own\nsource = two words"),
                "without spaces",
            ),
            (lambda text: "no section", "cannot be read"),
        ],
    )
    def test_a_configuration_that_cannot_be_meant(
        self,
        change: Callable[[str], str],
        sentence: str,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        config = a_config(tmp_path, "http://127.0.0.1:1")
        config.write_text(change(config.read_text()))
        assert once(config, monkeypatch) == 1
        said = capsys.readouterr().err
        assert sentence in said
        assert said.count("\n") == 1

    @pytest.mark.parametrize("mode", [0o640, 0o604, 0o644])
    def test_a_key_that_others_can_read_is_not_sent_and_never_printed(
        self, mode: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with portal() as requests:
            config = a_config(tmp_path, requests.url)
            (tmp_path / "key").chmod(mode)
            (tmp_path / "in" / "a.sacct").write_text(jobs(1))
            assert once(config, monkeypatch) == 1
        said = capsys.readouterr().err
        assert "chmod 600" in said
        assert "SECRET" not in said
        assert requests == []

    def test_one_agent_works_in_a_directory(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        config = a_config(tmp_path, "http://127.0.0.1:1")
        (tmp_path / "state").mkdir()
        with (tmp_path / "state" / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            assert once(config, monkeypatch) == 1
        assert "Another agent works" in capsys.readouterr().err


SACCT = """#!/bin/sh
echo "$TZ $*" >> {folder}/calls
case "$*" in *--jobs*) cat {folder}/jobs ;; *) cat {folder}/listing ;; esac
exit $(cat {folder}/code)
"""


class TestSacct:
    """Where the agent runs sacct itself."""

    @pytest.fixture
    def sacct(self, tmp_path: Path) -> Path:
        program = tmp_path / "sacct"
        program.write_text(SACCT.format(folder=tmp_path))
        program.chmod(0o700)
        (tmp_path / "code").write_text("0")
        (tmp_path / "jobs").write_text(HEADER + "\n")
        return tmp_path

    def config(self, folder: Path, url: str) -> Path:
        config = a_config(folder, url)
        text = config.read_text().partition("[directory]")[0]
        config.write_text(f"{text}[sacct]\ncommand = {folder}/sacct\noverlap_hours = 24\n")
        return config

    def test_it_looks_back_and_asks_after_jobs_that_were_open(
        self, sacct: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        running = row(JobIDRaw="7", State="RUNNING", End="Unknown")
        (sacct / "listing").write_text("\n".join([HEADER, running, row(JobIDRaw="8"), ""]))
        with portal() as requests:
            config = self.config(sacct, requests.url)
            assert once(config, monkeypatch) == 0
            (sacct / "listing").write_text("\n".join([HEADER, row(JobIDRaw="8"), ""]))
            older = row(JobIDRaw="7", Submit="2020-01-05T08:00:00")
            (sacct / "jobs").write_text("\n".join([HEADER, older, row(JobIDRaw="7"), ""]))
            time.sleep(1.1)  # looks are told apart by the second
            assert once(config, monkeypatch) == 0
            assert once(config, monkeypatch) == 0
        calls = (sacct / "calls").read_text().splitlines()
        assert all(call.startswith("UTC --allusers --allocations --duplicates --parsable2") for call in calls)
        assert ["--jobs 7" in call for call in calls] == [False, False, True, False]
        sent = [[event["id"] for event in events if "sacct" in event["type"]] for events in requests.pushed]
        submit = "2026-01-05T08:00:00"
        assert sent == [[f"7@{submit}", f"8@{submit}"], [f"7@{submit}"], []]
        assert all("complete" in events[-1]["type"] for events in requests.pushed)

    def test_a_failing_sacct_says_why_and_proves_nothing(
        self, sacct: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (sacct / "listing").write_text(jobs(2))
        (sacct / "code").write_text("1")
        with portal() as requests:
            assert once(self.config(sacct, requests.url), monkeypatch) == 1
        assert [event["type"].rpartition(".")[2] for event in requests.pushed[0]] == ["sacct", "sacct"]
        assert "sacct ended with 1" in capsys.readouterr().err

    def test_a_history_is_read_in_slices(self, sacct: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (sacct / "listing").write_text(jobs(1))
        with portal() as requests:
            config = self.config(sacct, requests.url)
            since = time.strftime("%Y-%m-%d", time.gmtime(time.time() - 20 * 86_400))
            config.write_text(config.read_text() + f"since = {since}\n")
            assert once(config, monkeypatch) == 0
        calls = (sacct / "calls").read_text().splitlines()
        assert len(calls) == 3
        assert f"--starttime {since}T00:00:00" in calls[0]


@pytest.mark.peers
def test_its_memory_does_not_grow_with_what_it_sends(tmp_path: Path) -> None:
    peaks = []
    for count in (1_000, 60_000):
        folder = tmp_path / str(count)
        folder.mkdir()
        with portal() as requests:
            config = a_config(folder, requests.url)
            (folder / "in" / "a.sacct").write_text(jobs(count))
            pid = os.spawnv(
                os.P_NOWAIT, sys.executable, ["python", str(AGENT), "--config", str(config), "--once"]
            )
            _, status, usage = os.wait4(pid, 0)
            assert status == 0
            assert sum(len(events) for events in requests.pushed) == count
        peaks.append(usage.ru_maxrss)
    assert peaks[1] < peaks[0] * 1.5
