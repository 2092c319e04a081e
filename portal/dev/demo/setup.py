"""The schema and the rows of the demo, in one process, which loads Django once.

It reports the name of each step that is done on standard output; everything else goes to its log.
"""

from __future__ import annotations

import os
import sys
from contextlib import redirect_stdout

SCHEMA, ROWS = "schema", "demo data"
REFUSAL = 2  # the code of a process that ends with a sentence for people, which stands for itself


def main() -> None:
    import django
    from django.conf import settings
    from django.core.management import call_command

    from portal.ops.manage import migrate

    report = sys.stdout
    with redirect_stdout(sys.stderr):
        django.setup()
        from portal.ops.schema import OtherSchemaError  # needs the applications

        try:
            migrate(settings.ENV.home, verbosity=1)
        except OtherSchemaError as refusal:
            sys.stderr.write(f"{refusal}\n")
            sys.exit(REFUSAL)
        _report(report.fileno(), SCHEMA)
        call_command("seed_demo")
        _report(report.fileno(), ROWS)


def _report(output: int, step: str) -> None:
    os.write(output, f"{step}\n".encode())


if __name__ == "__main__":
    main()
