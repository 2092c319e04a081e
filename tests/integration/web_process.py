"""The pages and the API as a process of their own, served as in production."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Self

from portal.env import ROOT
from tests.integration.slurm_lab import until
from tests.ports import a_free_port

GUNICORN = [sys.executable, "-m", "gunicorn", "--config", "deploy/gunicorn.conf.py"]


class WebProcess:
    """`with WebProcess(database_url, tmp_path) as web: … web.url`. It can be killed and started again."""

    code = ROOT
    """The directory of the program: this one, or an earlier release."""

    def __init__(self, database_url: str, home: Path, **variables: str) -> None:
        self.port = a_free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._environ = os.environ | {
            "DJANGO_SETTINGS_MODULE": "portal.settings",
            "CLUSTERTAB_HOME": str(home),
            "DATABASE_URL": database_url,
            "REDIS_URL": f"unix://{home}/none.sock",  # unless it is named; then no request is counted
            "ALLOWED_HOSTS": "127.0.0.1",
            "PORT": str(self.port),
            **variables,
        }
        self._process: subprocess.Popen[bytes] | None = None
        self._log = home / "web.log"

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                GUNICORN, env=self._environ, cwd=self.code, stdout=log, stderr=log, start_new_session=True
            )
        until(self._answers, seconds=120)

    def collect(self) -> None:
        """The files that pages load, which the API does without."""
        command = [sys.executable, "manage.py", "collectstatic", "--noinput", "-v0"]
        subprocess.run(command, env=self._environ, cwd=self.code, check=True)

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self._log.read_text()[-3000:]
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/openapi.json", timeout=30) as answer:
                return bool(answer.status == 200)
        except urllib.error.HTTPError as error:
            raise AssertionError(error.read()[:3000]) from None
        except OSError:
            return False

    @property
    def pid(self) -> int:
        """Of the process whose children serve."""
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """Kill -9 it with all of its workers."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
