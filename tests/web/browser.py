"""Looking at pages as people do: the system's Chromium, driven by playwright, with what it complained of."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright

Theme = Literal["light", "dark"]

WIDTHS = (1440, 390)
THEMES: tuple[Theme, ...] = ("light", "dark")
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
"""The first draws the same pages and starts in half the time: it has no window to draw."""

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
# Heard before any script of the page runs; read back with `violations`.
LISTENER = """
window.__violations = [];
const note = (kind, what) => {
  try { sessionStorage.setItem(kind, JSON.stringify([...JSON.parse(sessionStorage.getItem(kind) ?? "[]"), what])); }
  catch { /* a page without an origin stores nothing */ }
};
document.addEventListener("click", (event) => {
  const part = event.target.closest("a, button, summary, label, input, select");
  if (event.detail && part) note("clicks", (part.innerText || part.value || part.name).trim());
}, true);
document.addEventListener("input", (event) => {
  note("fields", `${location.pathname} ${event.target.name}`);
  note("typed", event.target.value.length);
}, true);
document.addEventListener("DOMContentLoaded", () =>
  note("words", document.querySelector("main")?.innerText.split(/\\s+/).length ?? 0));
document.addEventListener("securitypolicyviolation", (event) => window.__violations.push(
  `${event.violatedDirective}: ${event.blockedURI} at ${event.sourceFile}:${event.lineNumber}`));
"""


def executable() -> str | None:
    """Where the system keeps its Chromium, None if it has none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


SKIP_REASON = None if executable() else "no Chromium here: install Debian's chromium to see the pages"


@dataclass
class Visit:
    """An open page and all that went wrong on it so far."""

    page: Page
    console: list[str] = field(default_factory=list)  # errors and warnings, as the console shows them
    failures: list[str] = field(default_factory=list)  # exceptions of scripts

    def violations(self) -> list[str]:
        """What the content security policy refused on the present page."""
        return [str(line) for line in self.page.evaluate("window.__violations")]

    def clicks(self) -> list[str]:
        """What was clicked on pages of this site so far, by its words."""
        return [str(text) for text in self.page.evaluate("JSON.parse(sessionStorage.clicks ?? '[]')")]

    def fields(self) -> list[str]:
        """The fields that were filled in so far, each with the path of its page, once."""
        return sorted({str(text) for text in self.page.evaluate("JSON.parse(sessionStorage.fields ?? '[]')")})

    def seconds(self, *, reading: bool) -> float:
        """What somebody needs for all so far, by Card, Moran and Newell's model; `reading`: every word of each page.

        A click takes 2.65 s (to think, point and press), a field 2.15 s more (the hand goes to the keys and back),
        a character 0.28 s. 238 words are read in a minute (Brysbaert, 2019).
        """
        typed, words = (
            sum(self.page.evaluate(f"JSON.parse(sessionStorage.{name} ?? '[]')"))
            for name in ("typed", "words")
        )
        clicks, fields = len(self.clicks()), len(self.fields())
        acting = 2.65 * (clicks + fields) + 2.15 * fields + 0.28 * typed
        return float(acting + (words * 60 / 238 if reading else 0))

    def overflow(self) -> int:
        """By how many pixels the present page is wider than its window."""
        self.page.wait_for_load_state()  # a page that loads itself anew has no root for a moment
        return int(self.page.evaluate("document.documentElement.scrollWidth - window.innerWidth"))

    def clipped(self) -> list[str]:
        """The buttons of the present page whose text is wider than they are."""
        return self._wider(".btn")

    def cut_cells(self) -> list[str]:
        """The cells of tables of the present page that have more text than room; a name that ends in "…" has room."""
        return self._wider("td")

    def _wider(self, selector: str) -> list[str]:
        script = "all => all.filter((one) => one.scrollWidth > one.clientWidth).map((one) => one.innerText)"
        return [str(text) for text in self.page.eval_on_selector_all(selector, script)]

    def unfold(self) -> None:
        """Open all that is folded on the present page."""
        self.page.eval_on_selector_all("details", "all => all.forEach((one) => { one.open = true; })")

    def complaints(self) -> list[str]:
        return [*self.console, *self.failures, *self.violations()]

    def listen(self) -> None:
        def on_message(message: ConsoleMessage) -> None:
            if message.type in {"error", "warning"}:
                self.console.append(message.text)

        self.page.on("console", on_message)
        self.page.on("pageerror", lambda error: self.failures.append(str(error)))


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser without a profile; each `visit` starts with empty cookies and storage."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable(), args=ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def visit(
    browser: Browser, *, width: int = 1440, theme: Theme = "light", scripts: bool = True
) -> Iterator[Visit]:
    """A new window of that width for a person who prefers that theme, with or without JavaScript."""
    context = browser.new_context(
        viewport={"width": width, "height": 1000 if width > 700 else 844},
        color_scheme=theme,
        java_script_enabled=scripts,
        reduced_motion="reduce",
    )
    context.set_default_timeout(15_000)
    context.add_init_script(LISTENER)
    try:
        opened = Visit(context.new_page())
        opened.listen()
        yield opened
    finally:
        context.close()
