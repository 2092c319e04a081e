"""The units as systemd reads them: they verify, are confined, and start and stop together."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from portal.env import ROOT
from tests.architecture.deployments import COMMON, PREFIX, SYSTEMD, UNITS, unit

MOST_EXPOSED = 2.0  # of 10, by systemd's own count
ONE_OFF = {"migrate.service", "backup.service"}


@pytest.fixture(scope="module")
def analyze(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[Path]]:
    """The program, and copies of the units whose programs are where this machine has them."""
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("no systemd-analyze here: install Debian's systemd to verify the units")
    folder = tmp_path_factory.mktemp("units")
    for path in SYSTEMD.rglob("*.*"):
        if path.is_file():
            copy = folder / path.relative_to(SYSTEMD)
            copy.parent.mkdir(exist_ok=True)
            text = path.read_text().replace("/opt/clustertab/.venv/bin", str(Path(sys.executable).parent))
            copy.write_text(text.replace("/opt/clustertab", str(ROOT)))
    return program, sorted(folder.glob("clustertab*.*[a-z]"))


def test_systemd_takes_every_unit_without_a_word(analyze: tuple[str, list[Path]]) -> None:
    program, copies = analyze
    units = [path for path in copies if path.is_file()]
    assert len(units) == len(UNITS) + 2  # the target and the timer
    done = subprocess.run(
        [program, "verify", "--man=no", *units], capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_mistake_in_what_they_share_would_be_seen(analyze: tuple[str, list[Path]], tmp_path: Path) -> None:
    program, copies = analyze
    shutil.copytree(copies[0].parent, tmp_path / "units")
    common = tmp_path / "units" / f"{PREFIX}.service.d" / "common.conf"
    common.write_text(common.read_text().replace("NoNewPrivileges=yes", "NoNewPriviliges=yes"))
    web = tmp_path / "units" / f"{PREFIX}web.service"
    done = subprocess.run([program, "verify", "--man=no", web], capture_output=True, text=True, timeout=120)
    assert "NoNewPriviliges" in done.stderr


def test_no_unit_is_more_exposed_than_it_need_be(analyze: tuple[str, list[Path]]) -> None:
    program, copies = analyze
    units = [path for path in copies if path.suffix == ".service"]
    done = subprocess.run(
        [program, "security", "--offline=true", "--no-pager", *units],
        capture_output=True,
        text=True,
        timeout=120,
    )
    levels = re.findall(r"exposure level for \S+: ([\d.]+)", done.stdout)
    assert len(levels) == len(UNITS), done.stderr
    assert max(map(float, levels)) <= MOST_EXPOSED


@pytest.mark.parametrize("name", sorted(set(UNITS) - ONE_OFF))
def test_what_stays_up_starts_again_after_the_migrations_and_has_bounds(name: str) -> None:
    values = UNITS[name]
    assert values["After"] == values["Wants"] == [f"{PREFIX}migrate.service"]
    assert values["Restart"] == ["always"]
    assert values["WantedBy"] == ["clustertab.target"]
    assert {"MemoryMax", "TimeoutStopSec"} <= set(values)
    assert COMMON["PartOf"] == ["clustertab.target"]


@pytest.mark.parametrize("name", sorted(ONE_OFF))
def test_what_runs_once_does_so_where_the_owners_login_is(name: str) -> None:
    values = UNITS[name]
    assert values["Type"] == ["oneshot"]
    assert values["ConditionPathExists"] == values["EnvironmentFile"] == ["/etc/clustertab/owner.env"]
    assert "MemoryMax" in values


def test_the_guide_enables_every_unit() -> None:
    text = (ROOT / "docs/how-to/install-with-systemd.md").read_text()
    script = "\n".join(re.findall(r"^ *systemctl enable (.*)$", text, re.MULTILINE))
    words = subprocess.run(
        ["bash", "-c", f"echo {script.replace(chr(10), ' ')}"], capture_output=True, text=True, check=True
    ).stdout.split()
    enabled = {word if "." in word else f"{word}.service" for word in words}
    installed = {
        path.name for path in SYSTEMD.glob("clustertab*") if path.is_file() and "WantedBy" in unit(path)
    }
    assert enabled == installed


def test_the_units_do_not_touch_those_of_the_agents() -> None:
    """What all units of the portal share is by the beginning of their names."""
    others = [path.name for path in (ROOT / "deploy").glob("*/*.service") if path.parent != SYSTEMD]
    assert others
    assert [name for name in others if name.startswith(PREFIX)] == []
