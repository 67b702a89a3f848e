"""The program `homing` of `forked_verbs`: `python -IS fork_caller.py SOCKET WORDS…`.

It starts often, so it imports little, and nothing of Homing. It lends its standard streams to the process that is
forked for it, passes signals on, and ends as that process does.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from types import FrameType

PASSED_ON = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
STREAMS = (0, 1, 2)


def main() -> int:
    """Have the words of the command line run; the exit code, or -N where signal N ended it."""
    server = socket.socket(socket.AF_UNIX)
    server.connect(sys.argv[1])
    ignored = [number for number in PASSED_ON if signal.getsignal(number) is signal.SIG_IGN]

    def pass_on(number: int, _frame: FrameType | None) -> None:
        server.sendall(bytes([number]))

    for number in set(PASSED_ON).difference(ignored):
        signal.signal(number, pass_on)
    asked = {"words": sys.argv[2:], "environment": dict(os.environ), "ignored": ignored}
    body = json.dumps(asked).encode()
    folder = os.open(".", os.O_RDONLY)
    socket.send_fds(server, [len(body).to_bytes(4, "big")], (*STREAMS, folder))
    server.sendall(body)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in STREAMS:  # whoever reads what the process says sees its end, and not that of this one
        os.dup2(nowhere, stream)
    return int.from_bytes(server.recv(4, socket.MSG_WAITALL) or b"\1", "big", signed=True)


if __name__ == "__main__":
    code = main()
    if code < 0:
        if -code in PASSED_ON:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)
