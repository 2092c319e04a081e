"""`./run manage` where no database is named: the instance's own is started for as long as the command runs."""

from __future__ import annotations

import sys

from portal import env
from portal.dev.embedded.host import EmbeddedError
from portal.dev.embedded.postgres import Postgres
from portal.ops import manage


def main(arguments: list[str]) -> int:
    try:
        with Postgres(env.home_of()):
            return manage.main(arguments, embedded=True)
    except EmbeddedError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
