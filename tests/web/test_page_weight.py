"""Every page of the portal at once: how much of it goes over the wire, and how often it asks the database."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache

import pytest
from django.contrib.staticfiles import finders
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from billing.catalog import subscriptions
from billing.models import QuotaAction, QuotaEvery
from tests.api.door import door
from tests.quota_stories import a_quota
from tests.terms import GRADUATED, a_plan_of
from tests.web.full_house import a_full_house, a_payer_house
from tests.web.house import House, a_house, signed_in
from tests.web.test_access import ACTS, NOT_YET, OURS, TENANTS, address

pytestmark = pytest.mark.django_db

FIRST, LATER, QUERIES = 250_000, 60_000, 20
ASKED = {  # a page with a result asks more; the end of each budget's period, and of each month, cuts the job
    "t/<slug:slug>/quote/": "?gpus=1&gpu_model=a100&hours=2000",
    "t/<slug:slug>/budgets/check/": "?gpus=1&gpu_model=a100&hours=2000",
}
PREVIEWED = "/t/vision-lab/budgets/?act=preview&measure=money&every=month&amount=500&thresholds=50%25"
FONT = "vendor/inter-5.3.0/inter-latin-wght-normal.woff2"  # which the style sheet names
BEFORE_PAINT = {"vendor/tabler-1.6.1/tabler.min.css", "css/clustertab.css", "js/theme.js"}
"""What the first paint waits for: the last is small, and chooses light or dark."""
SIGN_IN = "/accounts/login/"


def test_no_page_is_heavy_or_asks_much() -> None:
    house = a_house()
    ann, op = signed_in(house.ann), signed_in(house.op)
    late: dict[str, tuple[int, int, int]] = {}
    walked = 0
    for route in OURS:
        if route in ACTS or route in NOT_YET:
            continue
        path = address(route, house) + ASKED.get(route, "")
        first, later, queries = weighed(ann if route.startswith("t/") else op, path)
        walked += later > 0
        if first > FIRST or later > LATER or queries > QUERIES:
            late[route] = (first, later, queries)
    assert walked > 50
    assert late == {}


@pytest.mark.parametrize("furnished", [a_full_house, a_payer_house])
def test_what_a_tenant_with_everything_has_does_not_make_its_pages_ask_more(
    furnished: Callable[[], House],
) -> None:
    house = furnished()
    ann = signed_in(house.ann)
    paths = [
        address(route, house) + ASKED.get(route, "")
        for route in TENANTS
        if route not in ACTS and route not in NOT_YET
    ]
    budgets = [quota.name for quota in house.vision.quotas.filter(wallet=None)]
    paths += [f"/t/vision-lab/budgets/at/{name}/" for name in budgets]
    paths += [f"{PREVIEWED}&name={name}&action=end-jobs" for name in ("month", "new")]
    paths += [f"{PREVIEWED}&name=own&project=vision&borrows_from=shared&action=no-gpu-jobs"]
    paths += [f"{PREVIEWED}&name=bens&user=ben&account=vision&qos=zz&action=notify"]
    assert {path: queries for path in paths if (queries := weighed(ann, path)[2]) > QUERIES} == {}


@pytest.mark.parametrize("furnished", [a_house, a_full_house])
def test_whether_a_job_may_run_that_runs_into_another_plan_asks_no_more(
    furnished: Callable[[], House],
) -> None:
    """The plan changes in two hours; months that nobody has billing periods for yet are made for the question."""
    house = furnished()
    for later in house.vision.subscriptions.filter(since__gt=datetime.now(UTC)):
        subscriptions.withdraw(subscription=later)
    plan = a_plan_of(GRADUATED, name="new")
    subscriptions.subscribe(tenant=house.vision, plan=plan, since=datetime.now(UTC) + timedelta(hours=2))
    a_quota(house.vision, "every-week", every=QuotaEvery.WEEK, action=QuotaAction.NO_GPU_JOBS)
    ann, key = signed_in(house.ann), door(house.ann, house.vision)
    body = {"gpus": 1, "gpu_model": "a100", "hours": "2000"}
    with CaptureQueriesContext(connection) as queries:
        key.writes("/quotas/check", body, status=200)
    page = weighed(ann, "/t/vision-lab/budgets/check/?gpus=1&gpu_model=a100&hours=2000")
    assert page[2] <= QUERIES
    assert sum(is_question(query["sql"]) for query in queries) <= QUERIES


def test_pages_are_compressed_and_what_shows_secrets_is_not() -> None:
    house = a_house()
    ann = signed_in(house.ann)
    headers = {"Accept-Encoding": "gzip"}
    page = ann.get("/t/vision-lab/", headers=headers)
    assert page.headers["Content-Encoding"] == "gzip"
    assert b"vision-lab" in gzip.decompress(page.content)
    assert "Accept-Encoding" in page.headers["Vary"]
    lengths = {len(ann.get("/t/vision-lab/invoices/", headers=headers).content) for _ in range(12)}
    assert len(lengths) > 1  # which tells nobody how long a secret in it is
    for path in (SIGN_IN, "/t/vision-lab/account/csv", "/api/v1/me"):
        assert "Content-Encoding" not in Client().get(path, headers=headers).headers
        assert "Content-Encoding" not in ann.get(path, headers=headers).headers


def weighed(client: Client, path: str) -> tuple[int, int, int]:
    """Bytes of a first view with all that it loads, bytes of a later one, and queries; of a page, else zeros."""
    with CaptureQueriesContext(connection) as queries:
        response = client.get(path, headers={"Accept-Encoding": "gzip"})
        response.getvalue()
    count = sum(is_question(query["sql"]) for query in queries)
    if not response.headers["Content-Type"].startswith("text/html") or response.status_code != 200:
        return 0, 0, count
    html = gzip.decompress(response.content).decode()
    assert waited_for(html) <= BEFORE_PAINT, path
    files = {re.sub(r"#.*", "", name) for name in re.findall(r'(?:href|src)="/static/([^"]+)"', html)}
    later = len(response.content)
    return later + sum(sent(name) for name in files | {FONT}), later, count


def waited_for(html: str) -> set[str]:
    """The files that a browser has before it paints anything: style sheets, and scripts that are not deferred."""
    tags = re.findall(r"<(?:script|link)\b[^>]*>", html)
    scripts = [
        tag for tag in tags if tag.startswith("<script") and not re.search(r"\s(?:defer|async)\b|json", tag)
    ]
    styles = [tag for tag in tags if 'rel="stylesheet"' in tag]
    return {"".join(re.findall(r'(?:href|src)="/static/([^"]+)"', tag)) or tag for tag in (*scripts, *styles)}


def is_question(sql: str | None) -> bool:
    """Whether data is asked for: marks of a transaction, of which a test has more, and the role set for it ask none."""
    scope = r"(?:SELECT set_config\([^;]*;)?"  # which goes before each statement of who acts for a tenant
    marks = r"SAVEPOINT|RELEASE|ROLLBACK|BEGIN|COMMIT"
    return not re.match(scope + rf"(?:{marks})|SELECT set_config\((?!.*;)", sql or "")


@cache
def sent(name: str) -> int:
    """Bytes of a static file, compressed as it is served where that helps."""
    found = finders.find(name)
    assert isinstance(found, str), name
    with open(found, "rb") as file:  # noqa: PTH123
        content = file.read()
    return min(len(content), len(gzip.compress(content)))
