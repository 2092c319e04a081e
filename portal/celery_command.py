"""`python -m portal.celery_command worker …`: Celery's command line with our application.

Of Celery's own commands one brings a shell for message queues, which nobody here uses and whose library takes 6 MiB of
each worker and of the scheduler: it is left out.
"""

from __future__ import annotations

import sys
from types import ModuleType

APPLICATION = ("--app", "portal.celery")


def main() -> None:
    shell = ModuleType("click_repl")
    vars(shell)["register_repl"] = lambda _: None
    sys.modules.setdefault("click_repl", shell)
    from celery.__main__ import main as celery

    sys.argv[1:1] = APPLICATION
    celery()


if __name__ == "__main__":
    main()
