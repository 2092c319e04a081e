"""An accounting file as large as is taken, sent by a browser to the web server as it is served."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from django.conf import settings
from playwright.sync_api import Error as PageError
from playwright.sync_api import Page, expect

from bench.meter import children, resident
from billing.rating import file_imports
from clusters.models import UsageFile, UsageFilePart
from tests import builders
from tests.integration.slurm_lab import until
from tests.integration.web_process import WebProcess
from tests.tiers import LONG
from tests.web.browser import SKIP_REASON, chromium, visit
from tests.web.house import signed_in
from tests.web.test_onboarding_in_a_browser import in_a_worker

pytestmark = [
    pytest.mark.usefixtures("transactional_db"),
    pytest.mark.skipif(SKIP_REASON is not None, reason=SKIP_REASON or ""),
]
HEADER = b"JobIDRaw|JobID|Cluster|Account|User|State|Submit|Start|End|ElapsedRaw|AllocTRES|Partition|QOS\n"
ROW = (
    "{id}|{id}|gpu1|vision|ben|COMPLETED|2026-03-05T08:59:00|2026-03-05T09:00:00|2026-03-05T11:00:00|7200|"
    "billing=8,cpu=8,gres/gpu:a100=1,gres/gpu=1,mem=64G,node=1|gpu|normal\n"
)
SIZE = file_imports.LARGEST if LONG else 100 << 20  # bytes
GROWTH = 32 << 10  # KiB of the web process beside what it had; a file of any size
PATIENCE = 600_000  # ms until the largest file is stored on a busy machine


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    """Where the web server puts a file while it is sent."""
    folder = tmp_path / "spool"
    folder.mkdir()
    return folder


@pytest.fixture
def web(database_url: str, tmp_path: Path, spool: Path) -> Iterator[WebProcess]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(spool))  # of the web server alone: a browser's would be too long a path
        patch.setenv("SECRET_KEY", settings.SECRET_KEY)  # by which a session holds there, too
        process = WebProcess(database_url, tmp_path)
    process.collect()
    with process as web:
        yield web


def an_export(path: Path, size: int) -> Path:
    """The same ten thousand jobs over and over, as far as that size."""
    block = "".join(ROW.format(id=number) for number in range(100_000, 110_000)).encode()
    with path.open("wb") as file:
        written = file.write(HEADER)
        while written + len(block) <= size:
            written += file.write(block)
    return path


def the_page(page: Page, url: str) -> None:
    """Of files of a cluster, opened by Op, who is signed in."""
    cookies: list[str] = []

    def prepared() -> None:
        builders.a_cluster("lab")
        cookies.append(signed_in(builders.an_operator()).cookies[settings.SESSION_COOKIE_NAME].value)

    in_a_worker(prepared)
    page.context.add_cookies([{"name": settings.SESSION_COOKIE_NAME, "value": cookies[0], "url": url}])
    page.goto(f"{url}/operator/clusters/lab/files/")


def stored() -> list[int]:
    """Bytes of each file, and how many pieces there are of all."""
    answer: list[int] = []

    def read() -> None:
        answer.extend([*UsageFile.objects.values_list("size", flat=True), UsageFilePart.objects.count()])

    in_a_worker(read)
    return answer


@pytest.mark.larger
def test_a_large_file_is_sent_with_its_progress_and_held_whole_by_no_process(
    web: WebProcess, tmp_path: Path, spool: Path
) -> None:
    file = an_export(tmp_path / "march.sacct", SIZE)
    with chromium() as browser, visit(browser) as seen:
        page = seen.page
        the_page(page, web.url)
        page.locator("#file").set_input_files(file)
        (worker,) = children(web.pid)
        before = most = resident(worker)
        page.get_by_role("button", name="Import", exact=True).click(no_wait_after=True)
        said: list[str] = []
        ended = time.monotonic() + PATIENCE / 1000
        while not page.get_by_text("The file is here. Its import starts shortly.").count():
            assert time.monotonic() < ended, said
            most = max(most, resident(worker))
            with suppress(PageError):  # as the next page comes
                said += page.locator("[data-progress] [role=status]").all_text_contents()
            page.wait_for_timeout(100)
        steps = [text for text in dict.fromkeys(said) if text.endswith("%")]
        assert len(steps) > 2  # 0 %, 7 %, 16 % …
        assert any(text.startswith("Sent.") for text in said)
        expect(page.get_by_role("row", name="march.sacct")).to_contain_text("Waiting")
        assert seen.complaints() == []
    size = file.stat().st_size
    assert stored() == [size, -(-size // (1 << 20))]
    assert most - before <= GROWTH, (before, most)
    assert list(spool.iterdir()) == []


def test_a_file_that_is_broken_off_or_too_large_leaves_nothing_behind(
    web: WebProcess, tmp_path: Path, spool: Path
) -> None:
    large = tmp_path / "year.sacct"
    with large.open("wb") as file:
        os.truncate(file.fileno(), file_imports.LARGEST + 1)  # it takes no room
    with chromium() as browser:
        with visit(browser) as seen:
            page = seen.page
            the_page(page, web.url)
            page.locator("#file").set_input_files(large)
            page.get_by_role("button", name="Import", exact=True).click()
            expect(page.get_by_text("The file is larger than 1 GiB: export shorter periods.")).to_be_visible()
            assert list(spool.iterdir()) == []  # nothing of it is sent

            page.locator("#file").set_input_files(an_export(tmp_path / "march.sacct", 200 << 20))
            cdp = page.context.new_cdp_session(page)
            cdp.send("Network.enable")
            slow = {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": 20 << 20}
            cdp.send("Network.emulateNetworkConditions", slow)
            page.get_by_role("button", name="Import", exact=True).click(no_wait_after=True)
            until(lambda: [each.stat().st_size > 0 for each in spool.iterdir()] == [True], seconds=60)
        until(lambda: list(spool.iterdir()) == [], seconds=60)  # her window is closed
    assert stored() == [0]
