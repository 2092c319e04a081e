"""When a browser paints the first of a page that it has never seen: with an empty cache, and nothing connected."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bench.meter import Cost
from bench.result import Figure, Result

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from bench.served import Site

ROUNDS = 5
MOST = 500  # ms
OF_A_TENANT = ("", "costs/", "costs/change/", "efficiency/", "jobs/", "invoices/", "plan/")
PAINTED = "() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0"
ANSWERED = "() => performance.getEntriesByType('navigation')[0].responseStart"


def first(web: Site, operator: str, slug: str) -> Result:
    """The least of so many views, since other work only adds; beside the first byte of the same view."""
    from tests.web.browser import chromium

    cookies = {f"/t/{slug}/{path}": web.cookie for path in OF_A_TENANT} | {"/operator/": operator}
    figures, painted, answered = [], 0.0, 0.0
    with chromium() as browser:
        for path, cookie in cookies.items():
            views = [_view(browser, f"http://127.0.0.1:{web.port}", path, cookie) for _ in range(ROUNDS)]
            paint, answer, busy = (min(column) for column in zip(*views, strict=True))
            name = f"ms until {path} is painted; until its first byte {answer:.0f}; CPU of its main thread {busy:.0f}"
            figures.append(Figure(name, paint, MOST))
            painted, answered = max(painted, paint), max(answered, answer)
    costs = Cost(0, 0, painted / 1_000, 0), Cost(0, 0, answered / 1_000, 0)
    title = "the first paint of the latest page, beside its first byte"
    return Result("paint", title, 1, "pages", *costs, by_wall=True, figures=tuple(figures))


def _view(browser: Browser, site: str, path: str, cookie: str) -> tuple[float, float, float]:
    """Milliseconds from the click to the first paint, to the first byte, and of the page's own CPU."""
    name, _, value = cookie.partition("=")
    context = browser.new_context(viewport={"width": 1440, "height": 1000})
    try:
        context.add_cookies([{"name": name, "value": value, "url": site}])
        page = context.new_page()
        devtools = context.new_cdp_session(page)
        devtools.send("Performance.enable", {"timeDomain": "threadTicks"})
        answer: Any = page.goto(f"{site}{path}")
        if answer.status != 200:
            raise AssertionError(f"{path}: {answer.status}")
        page.wait_for_function(PAINTED)
        metrics = {each["name"]: each["value"] for each in devtools.send("Performance.getMetrics")["metrics"]}
        paint, first_byte = page.evaluate(PAINTED), page.evaluate(ANSWERED)
        return float(paint), float(first_byte), 1_000 * float(metrics["TaskDuration"])
    finally:
        context.close()
