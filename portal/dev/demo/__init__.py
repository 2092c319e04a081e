"""`./run demo`: the whole product on this machine, with data to look at, until Ctrl-C."""


class DemoError(Exception):
    """Why there is no demo; one sentence."""
