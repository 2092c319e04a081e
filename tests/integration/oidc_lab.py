"""A real OpenID Connect provider on this machine: npm's oidc-provider, in a folder of its own. Needs Node and npm."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import httpx
import pytest

SOURCE = Path(__file__).with_name("oidc_provider")
SECRET = "the-secret-of-the-client"
CALLBACK = "http://testserver/accounts/oidc/uni/login/callback/"
SIGNED_OUT = "http://testserver/accounts/login/"


@dataclass
class OidcLab:
    """The provider; `says` is what it says of whom, by their name there."""

    url: str
    people: Path

    def says(self, who: str, **claims: Any) -> None:
        said = json.loads(self.people.read_text())
        self.people.write_text(json.dumps({**said, who: claims}))

    def sign_in(self, address: str, who: str, browser: httpx.Client | None = None) -> str:
        """Where the browser is sent back to, after `who` signed in there and agreed to what we ask for."""
        with browser_of(browser) as window:
            answer = window.get(address)
            for _ in range(20):
                if answer.is_redirect:
                    following = urljoin(str(answer.url), answer.headers["Location"])
                    if following.startswith(CALLBACK):
                        return following.removeprefix("http://testserver")
                    answer = window.get(following)
                    continue
                assert answer.status_code == 200, answer.text
                (form,) = re.findall(r'<form[^>]* action="([^"]+)"', answer.text)
                (prompt,) = re.findall(r'name="prompt" value="(\w+)"', answer.text)
                login = {"login": who, "password": "any"} if prompt == "login" else {}
                answer = window.post(form, data={"prompt": prompt, **login})
        raise AssertionError(f"The provider sent nobody back: {answer.url}")

    def knows(self, address: str, browser: httpx.Client) -> bool:
        """Whether whoever comes from there is signed in there still, and is sent back without a question."""
        answer = browser.get(address)
        while answer.is_redirect:
            following = urljoin(str(answer.url), answer.headers["Location"])
            if following.startswith(CALLBACK):
                return True
            answer = browser.get(following)
        assert 'name="prompt" value="login"' in answer.text
        return False

    def sign_out(self, address: str, browser: httpx.Client) -> str:
        """Where the browser is sent back to, after the person has confirmed it."""
        answer = browser.get(address)
        assert answer.status_code == 200, answer.text
        (form,) = re.findall(r'<form[^>]* action="([^"]+)"', answer.text)
        (secret,) = re.findall(r'name="xsrf" value="(\w+)"', answer.text)
        answer = browser.post(form, data={"xsrf": secret, "logout": "yes"})
        assert answer.is_redirect, answer.text
        return answer.headers["Location"].removeprefix("http://testserver")


@contextmanager
def browser_of(browser: httpx.Client | None) -> Iterator[httpx.Client]:
    """The window that is open already, or a new one for a moment."""
    if browser is not None:
        yield browser
        return
    with httpx.Client(trust_env=False) as window:
        yield window


def installed() -> Path:
    """The provider's folder; made once a machine."""
    if shutil.which("npm") is None:
        pytest.skip("Single sign-on was not tried: there is no npm. Install Node with npm.")
    package = (SOURCE / "package.json").read_text()
    (version,) = re.findall(r'"oidc-provider": "([\d.]+)"', package)
    home = Path(tempfile.gettempdir()) / f"clustertab-oidc-provider-{version}-{os.getuid()}"
    if not (home / "node_modules" / "oidc-provider").is_dir():
        home.mkdir(exist_ok=True)
        (home / "package.json").write_text(package)
        done = subprocess.run(
            ["npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts"],
            cwd=home,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
        if done.returncode != 0:
            shutil.rmtree(home, ignore_errors=True)
            pytest.skip(f"Single sign-on was not tried: npm could not install. {done.stderr[-2000:]}")
    (home / "provider.js").write_text((SOURCE / "provider.js").read_text())
    return home


@contextmanager
def a_provider(folder: Path) -> Iterator[OidcLab]:
    people = folder / "people.json"
    people.write_text("{}")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    client = {
        "client_id": "clustertab",
        "client_secret": SECRET,
        "redirect_uris": [CALLBACK],
        "post_logout_redirect_uris": [SIGNED_OUT],
    }
    process = subprocess.Popen(
        ["node", "provider.js", str(port), json.dumps(client), str(people)],
        cwd=installed(),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "ready"
        yield OidcLab(f"http://127.0.0.1:{port}", people)
    finally:
        process.kill()
        process.communicate()
