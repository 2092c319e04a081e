"""Pages as people see them: in every window, theme and language, kept where `--pictures` says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from playwright.sync_api import Browser, Frame, Page

from tests.web.browser import THEMES, WIDTHS, Visit, visit

ENGLISH = ("en",)
BOTH = ("en", "de")
LINKS = "all => all.map((one) => new URL(one.getAttribute('href'), document.baseURI).href)"


@dataclass
class Reader:
    """Somebody with a window and languages of their own, and the addresses that they opened or were offered."""

    name: str
    seen: Visit
    languages: Sequence[str]
    album: Album
    addresses: list[str] = field(default_factory=list)

    @property
    def page(self) -> Page:
        return self.seen.page

    def follow(self) -> None:
        """Note each address that is opened."""

        def on_navigated(frame: Frame) -> None:
            if frame.parent_frame is None and frame.url not in self.addresses:
                self.addresses.append(frame.url)

        self.page.on("framenavigated", on_navigated)

    def speaks(self, language: str) -> None:
        """The browser asks for that language from now on."""
        self.page.set_extra_http_headers({"Accept-Language": language})

    def looks(self, title: str) -> None:
        """At the present page in each language, window and theme: nothing is cut off, wider, or complained of."""
        self.album.titles.append(title)
        links = self.page.eval_on_selector_all("a[href]", LINKS)
        self.addresses += [link for link in links if link not in self.addresses]
        for language in self.languages:
            if len(self.languages) > 1:
                self.speaks(language)
                self.page.reload()
            self._looks(title, language)
        if self.languages[-1] != "en":
            self.speaks("en")
            self.page.reload()
        width, height = WIDTHS[0], 1000
        self.page.set_viewport_size({"width": width, "height": height})
        assert self.seen.complaints() == [], (self.name, title)

    def _looks(self, title: str, language: str) -> None:
        assert self.page.locator("html").get_attribute("lang") == language, (self.name, title)
        for width in WIDTHS:
            self.page.set_viewport_size({"width": width, "height": 1000 if width > 700 else 844})
            assert (self.seen.overflow() <= 0, self.seen.clipped()) == (True, []), (title, language, width)
            if self.album.directory is None:
                continue
            for theme in THEMES:
                self.page.emulate_media(color_scheme=theme)
                name = f"{len(self.album.titles):02}-{self.name}-{title}-{width}-{theme}-{language}.png"
                self.page.screenshot(path=self.album.directory / name, full_page=True)
            self.page.emulate_media(color_scheme="light")


@dataclass
class Album:
    """The readers of one walk and the pictures of what they saw, in the order of the walk."""

    browser: Browser
    directory: Path | None  # None: looked at, and not kept
    stack: ExitStack
    titles: list[str] = field(default_factory=list)

    def reader(self, name: str, languages: Sequence[str] = ENGLISH) -> Reader:
        reader = Reader(name, self.stack.enter_context(visit(self.browser)), languages, self)
        reader.follow()
        return reader


@contextmanager
def an_album(browser: Browser, directory: Path | None) -> Iterator[Album]:
    if directory is not None:
        directory.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        yield Album(browser, directory, stack)
