"""The proxy of docs/how-to/install.md in front of a web process: nginx, with the lines that are printed there."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.error import URLError
from urllib.request import urlopen

from portal.env import ROOT
from tests.integration.slurm_lab import until
from tests.ports import a_free_port

NGINX = Path("/usr/sbin/nginx")
SKIP_REASON = "nginx is not installed"
CONFIG = """
pid {home}/nginx.pid;
error_log {home}/nginx.log;
daemon off;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path {home}/body;
    proxy_temp_path {home}/proxy;
    fastcgi_temp_path {home}/fastcgi;
    uwsgi_temp_path {home}/uwsgi;
    scgi_temp_path {home}/scgi;
    server {{
        listen 127.0.0.1:{port};
        {location}
    }}
}}
"""


class Proxy:
    """`with Proxy(web.port, tmp_path) as proxy: … proxy.url`."""

    def __init__(self, to: int, home: Path) -> None:
        self.port = a_free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        text = (ROOT / "docs" / "how-to" / "install.md").read_text()
        (location,) = re.findall(r"^```\n(location / \{.*?^\})", text, re.MULTILINE | re.DOTALL)
        self._config = home / "nginx.conf"
        self._config.write_text(
            CONFIG.format(home=home, port=self.port, location=location.replace(":8000", f":{to}"))
        )
        self._process: subprocess.Popen[bytes] | None = None

    def _answers(self) -> bool:
        try:
            with urlopen(f"{self.url}/api/v1/openapi.json", timeout=30) as answer:
                return bool(answer.status == 200)
        except (URLError, OSError):
            return False

    def __enter__(self) -> Self:
        self._process = subprocess.Popen([NGINX, "-c", self._config])
        until(self._answers, seconds=60)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait()
