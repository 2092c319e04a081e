"""What every test stands on."""

from __future__ import annotations

import gc
import os
import shutil
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

import pytest
from django.test.utils import teardown_databases
from hypothesis import HealthCheck, settings
from pytest_django import DjangoDbBlocker

from tests import keepers, scheduling, sharing, tiers
from tests.peers import HOME, LOCK, POSTGRES, TEMPORARY

if TYPE_CHECKING:
    from tests.collecting import Scenario

# Over whatever holds already, as in CI. No test is about time: what is slow is the machine, or a matter of the bench.
ANYWHERE: dict[str, Any] = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
# The same examples on each run, new ones with `--long`: nobody is stopped by what another change broke.
settings.register_profile("short", settings(), derandomize=True, **ANYWHERE)
settings.register_profile("long", settings(), max_examples=1000, **ANYWHERE)
settings.load_profile("long" if tiers.LONG else "short")

ABSENT = pytest.StashKey[list[str]]()

pytest_plugins = ["tests.integration.prom_lab", "tests.integration.slurm_lab"]  # their fixtures


@pytest.fixture(scope="session")
def django_db_setup(
    request: pytest.FixtureRequest, django_test_environment: None, django_db_blocker: DjangoDbBlocker
) -> Iterator[None]:
    """Start the test database with the first test that needs one, unless DATABASE_URL names another server."""
    from portal.ops.schema import as_owner
    from tests import databases, emptying

    if os.environ["DATABASE_URL"] == POSTGRES.url():
        with django_db_blocker.unblock():
            databases.start(POSTGRES)
            emptying.prepare()
        yield
        POSTGRES.__exit__(None, None, None)
        return
    request.getfixturevalue("django_db_modify_db_settings_parallel_suffix")
    with django_db_blocker.unblock():
        created = databases.migrate()
        emptying.prepare()
    yield
    with django_db_blocker.unblock(), as_owner():
        teardown_databases(created, verbosity=0)


@pytest.fixture(autouse=True)
def settings_as_before() -> Iterator[None]:
    """Overrides that end in another order than they began in would leave theirs to the tests that follow."""
    from django.conf import settings

    before = settings._wrapped  # type: ignore[misc]  # of the lazy object, which the stubs do not show
    yield
    settings._wrapped = before


@pytest.fixture(autouse=True)
def brand_as_before() -> None:
    """Each test begins without a brand, which is read once it is changed: no clock decides who asks for it."""
    from portal.core.tenants import brand

    brand.remember(brand.CurrentBrand(), seconds=float("inf"))


@pytest.fixture
def mailed(settings: Any) -> None:
    """E-mails are sent, with links to this address."""
    settings.CLUSTERTAB_SENDS_MAIL = True
    settings.PORTAL_URL = "https://portal.example"


@pytest.fixture
def scenario() -> Iterator[Scenario]:
    """March's invoice of 4.00, which is due, and a stand-in for Stripe that has nothing of its tenant yet."""
    from tests.collecting import a_scenario

    with a_scenario() as scenario:
        yield scenario


def pytest_unconfigure(config: pytest.Config) -> None:
    from tests.integration import slurm_lab

    slurm_lab.end()
    keepers.release()
    if absent := config.stash.get(ABSENT, []):
        print(f"Not tested here: Slurm of {', '.join(absent)}, which cannot be installed.")
    shutil.rmtree(HOME, ignore_errors=True)


@pytest.fixture
def pictures(pytestconfig: pytest.Config) -> Path | None:
    """Where pictures of pages are kept; None for nowhere."""
    name = pytestconfig.getoption("--pictures")
    return Path(name) if name else None


@pytest.fixture
def database_url(transactional_db: None) -> str:
    """The address of the test database, for tests that start processes of their own."""
    from django.db import connection

    config = connection.settings_dict
    user = f"{quote(config['USER'])}:{quote(config['PASSWORD'])}"
    texts = {name: value for name, value in config["OPTIONS"].items() if isinstance(value, str)}
    options = urlencode({"host": config["HOST"], **texts})
    port = f":{config['PORT']}" if config["PORT"] else ""
    return f"postgresql://{user}@{port}/{quote(config['NAME'])}?{options}"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tiers")
    group.addoption("--peers", action="store_true", help="the tests that start other programs")
    group.addoption("--long", action="store_true", help="the tests of many seeds, or of minutes")
    group.addoption("--pictures", metavar="DIRECTORY", help="keep there what the walk in a browser saw")


def pytest_configure(config: pytest.Config) -> None:
    from tests.integration import slurm_lab

    if hasattr(config, "workerinput"):
        keepers.keep(HOME, lock=LOCK)
    else:
        keepers.keep(HOME, TEMPORARY, lock=LOCK)
        slurm_lab.announce(HOME / "slurm")
        TEMPORARY.mkdir(mode=0o700, exist_ok=True)
        os.environ["PYTEST_DEBUG_TEMPROOT"] = str(TEMPORARY)
    tiers.RUN.whole = tiers.LONG or tiers.PEERS in tiers.chosen(config)
    for marker in tiers.MARKERS:
        config.addinivalue_line("markers", marker)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Every second process reads the files from the last on: in a new checkout each compiles its half of them."""
    report = yield
    worker = getattr(collector.config, "workerinput", {}).get("workerid", "gw0")
    if isinstance(collector, pytest.Directory) and int(worker.removeprefix("gw")) % 2:
        report.result.reverse()  # the order of tests is made once all are read
    return report


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    tiers.select(config, items)
    sharing.order(items)
    if hasattr(config, "workerinput"):
        scheduling.order(items)


def pytest_collection_finish(session: pytest.Session) -> None:
    from tests.integration import slurm_lab

    # What was imported and collected stays, and what tests leave is small: nothing is gained by looking often.
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)

    config = session.config
    if not (
        hasattr(config, "workerinput") or config.option.collectonly or config.getoption("numprocesses", None)
    ):
        slurm_lab.begin(scheduling.slurms(item.nodeid for item in session.items))


def pytest_xdist_node_collection_finished(node: Any, ids: list[str]) -> None:
    from tests.integration import slurm_lab

    slurm_lab.begin(scheduling.slurms(ids))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    return scheduling.Groups(config, log)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """How long it took, and what took longest."""
    from tests.integration.slurm_lab import absent_suites

    config.stash[ABSENT] = absent_suites(terminalreporter.stats.get("skipped", []))
    slowest = scheduling.slowest([fixture for some in terminalreporter.stats.values() for fixture in some])
    if len(slowest) < 10:
        return
    seconds = int(time.time() - terminalreporter._session_start.time)
    terminalreporter.write_sep("=", f"{seconds // 60} min {seconds % 60} s; the ten that took longest")
    for spent, test in slowest:
        terminalreporter.write_line(f"{spent:7.2f} s  {test}")
