#!/usr/bin/env python3
"""Django's command line. `./run manage` calls it with the instance's database up."""

import os
import sys

from django.core.management import execute_from_command_line


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
