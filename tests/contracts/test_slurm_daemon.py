"""The daemon of `deploy/slurm/`: what it makes of options and of the queue, and whom it answers. Cases 50 and 51."""

from __future__ import annotations

import ast
import importlib.util
import os
import pwd
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from portal.env import ROOT

FOLDER = ROOT / "deploy" / "slurm"
FILE = FOLDER / "clustertab_slurm.py"
ME = pwd.getpwuid(os.getuid()).pw_name


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("clustertab_slurm", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


daemon = load()
SETTINGS = {**daemon.DEFAULTS["ask"], "default_hours": 24, "minute_limit": 3}


class Portal:
    """Answers as `fits` says, and keeps what it was asked."""

    def __init__(self, *, fits: bool = True) -> None:
        self.fits = fits
        self.requests: list[Mapping[str, Any]] = []
        self.cannot_read = ""  # the key of a body that it answers with a 400

    def ask(self, path: str, body: Mapping[str, Any] | None = None, **_: Any) -> Mapping[str, Any]:
        if body is None:
            self.requests.append({"DELETE": path})
            return {}
        self.requests.append(dict(body))
        if body["key"] == self.cannot_read:
            raise daemon.RefusedError("ClusterTab cannot answer: 400.")
        return {"reserved": self.fits, "may_run": self.fits, "message": "Budget yearly:\n2 left.", "tasks": 1}


class Slurm:
    """Ours is the account vision, and another's speech."""

    read_at = 0.0
    partitions: Mapping[str, Any] = {"gpu": ("a100", 600, 2880), "all": ("", None, None)}
    default_partition = "gpu"
    default_account: Mapping[str, str] = {ME: "vision"}
    accounts: Mapping[str, set[str]] = {ME: {"vision"}, "eve": {"speech"}}

    def __init__(self) -> None:
        self.rows: list[Mapping[str, str]] = []

    def jobs(self) -> list[Mapping[str, str]]:
        return self.rows

    def read_partitions(self) -> None:
        self.partitions = type(self).partitions


def a_row(job: str, state: str = "PD", array: str = "", **fields: str) -> dict[str, str]:
    values = dict.fromkeys(daemon.QUEUE.split(","), "") | {
        "arrayjobid": job, "jobarrayid": array or job, "statecompact": state, "reason": "Priority",
        "account": "vision", "username": "ben", "partition": "gpu", "qos": "normal", "timelimit": "1:00:00",
        "tres-alloc": "cpu=2,mem=62.50G,node=1,gres/gpu=2,gres/gpu:a100=2",
    }  # fmt: skip
    return values | fields


def a_queue(tmp_path: Path, portal: Portal) -> tuple[Any, Slurm]:
    slurm = Slurm()
    config = {"queue": {"state_file": str(tmp_path / "queue.json"), "arrays": "at-once"}}
    return daemon.Queue(config, portal, slurm), slurm


def test_it_is_read_by_python_3_6_and_gives_no_shell_what_users_say() -> None:
    tree = ast.parse(FILE.read_text(), feature_version=(3, 6))
    modules = {
        alias.name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    assert modules <= sys.stdlib_module_names
    assert not any(isinstance(node, ast.keyword) and node.arg == "shell" for node in ast.walk(tree))
    lua = (FOLDER / "cli_filter.lua").read_text()
    assert len(lua.splitlines()) <= 60
    assert lua.count("popen") == 1  # of a fixed command, and a file's name that the C library made
    assert 'io.popen(CURL .. name .. " http://clustertab/" .. path)' in lua


@pytest.mark.parametrize(
    ("options", "shape"),
    [
        ({"gres": "gres:gpu:a100:2", "nodes": "2-4", "time": "01:30:00"},
         {"gpus": 8, "gpu_model": "a100", "hours": "1.5000"}),
        ({"gpus": "3", "time": "2982616-04:14:00", "nodes": "1-0"},
         {"gpus": 3, "gpu_model": "a100", "hours": "10.0000"}),  # of the partition
        ({"gpus-per-task": "h100:1", "ntasks": "5", "cpus-per-task": "4", "mem": "4G", "time": "UNLIMITED"},
         {"gpus": 5, "gpu_model": "h100", "hours": "48.0000", "cpus": "20", "memory_gib": "4.000"}),
        ({"gres": "gres/gpu:a100_1g.5gb:2,license:4(S:0)", "partition": "all", "qos": "high"},
         {"gpus": 2, "gpu_model": "a100", "mig_profile": "1g.5gb", "gpu_share": "1/7", "queue": "all",
          "qos": "high", "hours": "24.0000"}),
        ({"gres": "gres:shard:2", "nodes": "2"},
         {"gpus": 0, "shards": 4, "gpu_model": "a100", "hours": "10.0000"}),
        ({"gres": "gres/shard:h100:3", "partition": "all"},
         {"gpus": 0, "shards": 3, "gpu_model": "h100", "queue": "all", "hours": "24.0000"}),
        ({"array": "0-9:3,15%2", "time": "1", "mem": "500M"},
         {"gpus": 0, "tasks": 5, "at_once": 2, "hours": "0.0167", "memory_gib": "0.489"}),
    ],
)  # fmt: skip
def test_what_a_job_may_hold_is_read_from_its_options(
    options: Mapping[str, str], shape: Mapping[str, Any]
) -> None:
    fields = daemon.shape_of(options, Slurm(), SETTINGS)
    assert fields == {"cpus": fields["cpus"], "queue": "gpu"} | dict(shape)


def test_quota_050_only_members_of_an_account_learn_of_it_and_nobody_asks_without_end() -> None:
    portal = Portal(fits=False)
    asker, uid = daemon.Asker({"ask": SETTINGS}, portal, Slurm()), os.getuid()
    assert asker.ask(uid, {"account": "speech", "key": "a1"}) == ("yes", "")
    assert asker.ask(uid, {"key": "a1", "dependency": "afterok:7"})[0] == "yes"
    assert portal.requests == []
    assert asker.ask(uid, {"key": "a1", "gpus": "1", "type": "salloc"}) == ("no", "Budget yearly:\n2 left.")
    (request,) = portal.requests
    assert (request["account"], request["user"], request["lasts"]) == ("vision", ME, 120)
    assert request["key"].startswith(f"ask-{uid}-")
    with pytest.raises(daemon.SilenceError, match="no key"):
        asker.ask(uid, {"key": "a/../b"})
    for _ in range(3):
        asker.count(uid)
    with pytest.raises(daemon.SilenceError, match="too often"):
        asker.count(uid)
    asker.count(uid + 1)
    assert asker.submitted(uid, {"key": "a1", "job_id": "7"}) == ("unknown", "")  # nothing was reserved


def test_quota_050_what_was_reserved_for_a_job_that_slurm_refused_is_free_after_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    portal = Portal()
    asker, uid = daemon.Asker({"ask": SETTINGS}, portal, Slurm()), os.getuid()
    assert asker.ask(uid, {"key": "a1", "gpus": "1"}) == ("yes", "")
    asker.give_free()
    assert len(portal.requests) == 1
    later = time.monotonic() + daemon.SUBMIT_SECONDS
    monkeypatch.setattr(daemon.time, "monotonic", lambda: later)
    asker.give_free()
    asker.give_free()
    assert portal.requests[1:] == [{"DELETE": "job-reservations/" + portal.requests[0]["key"]}]


def test_who_says_the_same_word_again_does_not_reach_what_was_reserved_before() -> None:
    portal = Portal()
    asker, uid = daemon.Asker({"ask": SETTINGS}, portal, Slurm()), os.getuid()
    for gpus in ("8", "1"):  # a job that runs, and a small one in its place
        asker.ask(uid, {"key": "a1", "gpus": gpus})
    first, second = (body["key"] for body in portal.requests)
    assert first != second


def test_quota_051_what_is_held_or_depends_is_reserved_for_when_it_waits(tmp_path: Path) -> None:
    portal = Portal()
    queue, slurm = a_queue(tmp_path, portal)
    slurm.rows = [
        a_row("7", reason="JobHeldUser"),
        a_row("8", dependency="afterok:7(unfulfilled)"),
        a_row("9"),
    ]
    queue.look()
    assert portal.requests == []  # whoever submitted it may be about to say its number
    queue.look()
    assert [body["key"] for body in portal.requests] == ["job-9"]
    assert {**portal.requests[0], "key": ""} == {
        "key": "", "job_id": "9", "account": "vision", "user": "ben", "gpus": 2, "gpu_model": "a100",
        "hours": "1.0000", "queue": "gpu", "qos": "normal", "cpus": "2", "memory_gib": "62.500",
    }  # fmt: skip
    slurm.rows = [a_row("7"), a_row("8", "R"), a_row("9", "R")]
    queue.look()
    queue.look()
    assert [body["key"] for body in portal.requests[1:]] == ["job-7", "job-8"]
    slurm.rows = [a_row("7", timelimit="2:00:00"), a_row("9")]  # another limit; a requeue
    queue.look()
    queue.look()
    assert [(body["key"], body["hours"]) for body in portal.requests[3:]] == [
        ("job-7", "2.0000"), ("job-9", "1.0000"),
    ]  # fmt: skip


def test_shards_that_wait_are_reserved_for_with_the_model_of_their_partition(tmp_path: Path) -> None:
    portal = Portal()
    queue, slurm = a_queue(tmp_path, portal)
    slurm.partitions = {}  # nothing else has read them where [queue] alone is configured
    slurm.rows = [a_row("9", **{"tres-alloc": "cpu=1,mem=1G,node=1,billing=1,gres/shard=3"})]
    queue.look()
    queue.look()
    (body,) = portal.requests
    assert (body["gpus"], body["shards"], body["gpu_model"]) == (0, 3, "a100")


def test_quota_051_an_array_keeps_its_tasks_though_the_daemon_starts_again(tmp_path: Path) -> None:
    portal = Portal()
    queue, slurm = a_queue(tmp_path, portal)
    slurm.rows = [a_row("5", array="5_[1-99%8]"), a_row("5", "R", array="5_0")]
    queue.look()
    queue.look()
    (array,) = portal.requests
    assert (array["tasks"], array["at_once"]) == (100, 8)
    slurm.rows = [a_row("5", array="5_[70-99%8]"), a_row("5", "R", array="5_69")]
    again, slurm_again = a_queue(tmp_path, portal)
    slurm_again.rows = slurm.rows
    again.look()
    again.look()
    slurm_again.rows = [a_row("5", "R", array="5_99")]
    again.look()
    assert len(portal.requests) == 1


def test_quota_051_an_array_whose_last_tasks_wait_is_still_reserved_for_as_many_as_run(
    tmp_path: Path,
) -> None:
    portal = Portal()
    queue, slurm = a_queue(tmp_path, portal)
    slurm.rows = [
        a_row("5", array="5_[8-9%8]"),
        *(a_row("5", "R", array=f"5_{task}") for task in range(8)),
    ]
    queue.look()
    queue.look()
    (array,) = portal.requests
    assert (array["tasks"], array["at_once"]) == (10, 8)


def test_a_job_that_clustertab_cannot_read_keeps_no_other_from_being_reserved_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    portal = Portal()
    queue, slurm = a_queue(tmp_path, portal)
    portal.cannot_read = "job-7"
    slurm.rows = [a_row("7"), a_row("8")]
    for _ in range(3):
        queue.look()
    assert [body["key"] for body in portal.requests] == ["job-7", "job-8"]
    assert capsys.readouterr().err == "Job 7: ClusterTab cannot answer: 400.\n"


def test_a_job_that_does_not_fit_is_asked_for_again_after_some_minutes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    portal = Portal(fits=False)
    queue, slurm = a_queue(tmp_path, portal)
    slurm.rows = [a_row("9")]
    for _ in range(4):
        queue.look()
    assert len(portal.requests) == 1
    assert capsys.readouterr().err == "Job 9 does not fit: Budget yearly: 2 left.\n"
    later = time.monotonic() + daemon.AGAIN_SECONDS + 1
    monkeypatch.setattr(daemon.time, "monotonic", lambda: later)
    queue.look()
    assert len(portal.requests) == 2


def test_what_nobody_foresaw_ends_none_of_the_works(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rounds = iter([AttributeError("no such thing"), AttributeError("no such thing"), None])

    def look() -> None:
        if error := next(rounds):
            raise error

    naps = iter([None, None, KeyboardInterrupt()])

    def sleep(_: int) -> None:
        if end := next(naps):
            raise end

    monkeypatch.setattr(daemon.time, "sleep", sleep)
    with pytest.raises(KeyboardInterrupt):
        daemon.repeat("Queue", look, 20)
    assert capsys.readouterr().err == "Queue: AttributeError('no such thing')\nQueue: goes on.\n"


def test_a_configuration_that_cannot_be_is_refused_with_a_sentence(tmp_path: Path) -> None:
    good = "[portal]\nurl = https://billing.example\nkey_file = /k\n[ask]\n"
    config = tmp_path / "c"
    config.write_text(good)
    assert daemon.read_config(config)["on"] == ["ask"]
    assert daemon.read_config(FOLDER / "clustertab-slurm.conf")["on"] == ["ask", "blocked", "queue"]
    for text, sentence in (
        (good.replace("[ask]", ""), "say what is to be done"),
        (good.replace("https", "http"), "begins with https"),
        (good + "on_failure = perhaps\n", "on_failure in .ask. is admit or reject"),
        (good + "default_hours = 0\n", "a whole number from 1 on"),
        (good + "colour = red\n", "no setting 'colour'"),
    ):
        config.write_text(text)
        with pytest.raises(daemon.Trouble, match=sentence):
            daemon.read_config(config)
    key = tmp_path / "key"
    key.write_text("ct_live_" + "k" * 30)
    key.chmod(0o644)
    with pytest.raises(daemon.Trouble, match="Others can read"):
        daemon.read_key(key)
