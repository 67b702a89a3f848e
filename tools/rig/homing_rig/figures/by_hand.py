"""A roll-out as teams write it themselves: fifty devices at once, and a file of those that have answered.

`python -m homing_rig.figures.by_hand PORT FILE DEVICE…` goes on where the file ends. Measured by `held_peers`.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import Final

import orjson
from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

AT_ONCE: Final = 50


def roll_out(port: int, file: Path, devices: list[str]) -> None:
    """Send a command to each device that has not answered yet, and wait for all answers."""
    done = set(file.read_text().split()) if file.exists() else set()
    waiting, ended = set(devices) - done, threading.Event()
    room, subscribed = threading.Semaphore(AT_ONCE), threading.Event()
    with file.open("a") as written:

        def answered(_client: paho.Client, _data: object, message: paho.MQTTMessage) -> None:
            device = message.topic.split("/")[1]
            if device in waiting:
                waiting.discard(device)
                written.write(f"{device}\n")
                written.flush()
                room.release()
            if not waiting:
                ended.set()

        client = paho.Client(CallbackAPIVersion.VERSION2, "by-hand", protocol=MQTTProtocolVersion.MQTTv5)
        client.on_message = answered
        client.on_subscribe = lambda *_: subscribed.set()
        client.connect("127.0.0.1", port)
        client.subscribe("homing/+/response", 1)
        client.loop_start()
        subscribed.wait()
        for device in devices:
            if device not in done:
                room.acquire()
                command = orjson.dumps({"id": device, "method": "work", "params": {}})
                client.publish(f"homing/{device}/command", command, 1)
        ended.wait()
        client.disconnect()
        client.loop_stop()


if __name__ == "__main__":
    roll_out(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
