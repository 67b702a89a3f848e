"""An autopilot behind a bridge: JSON becomes MAVLink frames of pymavlink, and its COMMAND_ACK becomes JSON."""

from __future__ import annotations

import json
import sys

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion
from pymavlink.dialects.v20 import common

host, port = sys.argv[1], int(sys.argv[2])
PARAMS = [f"param{number}" for number in range(1, 8)]


class Wire:
    """Bytes between the two ends; what is written is kept."""

    def __init__(self) -> None:
        self.written = b""

    def write(self, data: bytes) -> None:
        """As a serial port."""
        self.written += data


def frame(message: common.MAVLink_message, system: int) -> common.MAVLink_message:
    """A message as the other end reads it from the wire."""
    wire = Wire()
    common.MAVLink(wire, srcSystem=system, srcComponent=1).send(message)
    [heard] = common.MAVLink(None).parse_buffer(wire.written)
    return heard


def autopilot(command: common.MAVLink_message) -> list[common.MAVLink_message]:
    """Take-off goes on for a while; there is no reboot; all else is done at once."""
    number = command.command
    if number == common.MAV_CMD_NAV_TAKEOFF:
        results = [(common.MAV_RESULT_IN_PROGRESS, 40), (common.MAV_RESULT_ACCEPTED, 255)]
    elif number == common.MAV_CMD_PREFLIGHT_REBOOT_SHUTDOWN:
        results = [(common.MAV_RESULT_UNSUPPORTED, 255)]
    else:
        results = [(common.MAV_RESULT_ACCEPTED, 255)]
    return [frame(common.MAVLink_command_ack_message(number, *one), 1) for one in results]


def heard(client: mqtt.Client, _data: object, message: mqtt.MQTTMessage) -> None:
    """A command of ours."""
    body = json.loads(message.payload)
    number = getattr(common, body["command"])
    params = [float(body.get(name, 0)) for name in PARAMS]
    asked = frame(common.MAVLink_command_long_message(1, 1, number, 0, *params), 255)
    for ack in autopilot(asked):
        name = common.enums["MAV_CMD"][ack.command].name
        said = {"command": name, "result": ack.result, "progress": ack.progress}
        client.publish("uav/mav-1/ack", json.dumps(said), qos=1)


client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id="mav-1")
client.on_connect = lambda one, *_: one.subscribe("uav/mav-1/cmd", qos=1)
client.on_message = heard
client.connect(host, port)
client.loop_forever()
