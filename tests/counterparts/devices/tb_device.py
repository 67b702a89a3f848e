"""A ThingsBoard device, by the maker's client. Its broker mounts it below its id."""

from __future__ import annotations

import sys
import threading
from typing import Any

from tb_device_mqtt import TBDeviceMqttClient

host, port = sys.argv[1], int(sys.argv[2])
client = TBDeviceMqttClient(host, port, username="device", client_id="tb-1")


def asked(request_id: int, body: dict[str, Any]) -> None:
    """Answer with what was asked, and the id as the client read it."""
    client.send_rpc_reply(request_id, {"method": body["method"], "params": body["params"], "id": int(request_id)})


client.set_server_side_rpc_request_handler(asked)
client.connect()
threading.Event().wait()
