"""Tests reach nobody but this machine, and a warning is an error."""

from __future__ import annotations

import socket
import warnings

import pytest
from pytest_socket import SocketConnectBlockedError


def test_a_connection_to_elsewhere_is_refused() -> None:
    warnings.simplefilter("ignore")  # it warns before it raises
    with socket.socket() as outward, pytest.raises(SocketConnectBlockedError):
        outward.connect(("192.0.2.1", 80))


def test_a_connection_to_this_machine_is_not() -> None:
    with socket.socket() as server, socket.socket() as client:
        server.bind(("127.0.0.1", 0))
        server.listen()
        client.connect(server.getsockname())


def test_a_warning_is_an_error() -> None:
    with pytest.raises(DeprecationWarning):
        warnings.warn("soon gone", DeprecationWarning, stacklevel=1)
