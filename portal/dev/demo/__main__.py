"""Arguments, signals and refusals of `./run demo`."""

from __future__ import annotations

import argparse
import errno
import signal
import sys
from typing import Any

from portal import env
from portal.dev.demo import DemoError
from portal.dev.demo.start import demo
from portal.dev.embedded.host import EmbeddedError
from portal.env_variables import SettingError
from portal.instance import full_disk
from portal.ops import connectivity
from portal.ops.processes import ChildError


class _StopError(Exception):
    """Somebody asked us to end."""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="./run demo", description="The whole product with made-up data.")
    parser.add_argument("--port", default="8000", help="where the pages are served (default 8000)")
    text = parser.parse_args(arguments).port
    if not text.isdecimal():
        sys.stderr.write(f"{text} is no port; choose one between 1 and 65535.\n")
        return 2
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _raise_stop)
    try:
        demo(env.home_of(), int(text))
    except _StopError:
        return 0
    except (DemoError, EmbeddedError, ChildError, connectivity.UnreachableError, SettingError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
            raise
        sys.stderr.write(f"{full_disk(env.home_of())}\n")
        return 2
    return 0


def _raise_stop(number: int, frame: Any) -> None:
    del number, frame
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # we are stopping; being asked again changes nothing
    raise _StopError


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
