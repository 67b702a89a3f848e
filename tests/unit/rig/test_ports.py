"""Ports for servers of rigs and tests that run side by side."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from app.rig import ports
from app.rig.ports import NoFreePortError, lasting_port

ASK = "from app.rig import ports; ports.PORTS = range({0}, {1}); print(ports.lasting_port()); input()"


@pytest.fixture
def one_port(monkeypatch: pytest.MonkeyPatch) -> range:
    """All that there is."""
    while True:
        first = lasting_port()
        if (first + 1) in ports.PORTS and not _taken(first + 1):
            monkeypatch.setattr(ports, "PORTS", range(first + 1, first + 2))
            return ports.PORTS


def _taken(port: int) -> bool:
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(type=kind) as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                return True
    return False


def test_a_port_that_another_process_was_given_is_not_given_again(one_port: range) -> None:
    asked = ASK.format(one_port.start, one_port.stop)
    with subprocess.Popen(
        [sys.executable, "-c", asked], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        assert int(other.stdout.readline()) == one_port.start
        with pytest.raises(NoFreePortError):
            lasting_port()
        other.stdin.close()
        other.wait()
    assert lasting_port() == one_port.start
