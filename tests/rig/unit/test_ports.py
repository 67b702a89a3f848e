"""Ports for servers of rigs and tests that run side by side."""

from __future__ import annotations

import subprocess
import sys

import pytest

from homing_rig import ports
from homing_rig.ports import NoFreePortError, lasting_port

ASK = "from homing_rig.ports import lasting_port; print(lasting_port(range({0}, {1}))); input()"


@pytest.fixture
def one_port() -> range:
    """All that there is."""
    port = lasting_port()
    ports._reserved.pop().close()
    return range(port, port + 1)


def test_a_port_that_another_process_was_given_is_not_given_again(one_port: range) -> None:
    asked = ASK.format(one_port.start, one_port.stop)
    with subprocess.Popen(
        [sys.executable, "-c", asked], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        assert int(other.stdout.readline()) == one_port.start
        with pytest.raises(NoFreePortError):
            lasting_port(one_port)
        other.stdin.close()
        other.wait()
    assert lasting_port(one_port) == one_port.start
