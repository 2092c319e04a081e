"""`python -m portal.dev.stripe_sandbox --port N --home DIR [--webhook URL --secret whsec_…]`"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from pathlib import Path

from portal.dev.stripe_sandbox.sandbox import Sandbox


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m portal.dev.stripe_sandbox", description="A stand-in for Stripe. No money moves."
    )
    parser.add_argument("--port", type=int, required=True, help="on 127.0.0.1")
    parser.add_argument(
        "--home", type=Path, required=True, help="directory that keeps its state over a restart"
    )
    parser.add_argument("--webhook", help="address that events are sent to")
    parser.add_argument("--secret", help="what signs them: whsec_…")
    parser.add_argument("--live", action="store_true", help="an account of live keys, to try their refusal")
    options = parser.parse_args(arguments)
    if (options.webhook is None) != (options.secret is None):
        parser.error("give --webhook and --secret together, or neither")
    try:
        sandbox = Sandbox(
            port=options.port,
            home=options.home,
            webhook=options.webhook,
            secret=options.secret,
            live=options.live,
        )
    except OSError as refused:
        sys.stderr.write(
            f"The sandbox cannot start on port {options.port}: {refused.strerror}. Give another --port.\n"
        )
        return 1
    ended = threading.Event()
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, lambda *_: ended.set())
    with sandbox:
        sys.stdout.write(f"Stripe sandbox on {sandbox.url}, key {sandbox.key}. No money moves.\n")
        sys.stdout.flush()
        ended.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
