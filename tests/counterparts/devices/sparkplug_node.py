"""An edge node and its press, by pysparkplug: the next data say what a command writes, by alias where it was."""

from __future__ import annotations

import sys
from queue import SimpleQueue

from pysparkplug import (
    Client,
    DataType,
    DData,
    Device,
    EdgeNode,
    Message,
    MessageType,
    Metric,
    NData,
    QoS,
    Topic,
    get_current_timestamp,
)

host, port = sys.argv[1], int(sys.argv[2])
REBIRTH = "Node Control/Rebirth"
SPEED, MODE = 7, 8
births: SimpleQueue[None] = SimpleQueue()


def metric(name: str | None, datatype: DataType, value: object, alias: int | None = None) -> Metric:
    """As it is now."""
    return Metric(timestamp=get_current_timestamp(), name=name, datatype=datatype, value=value, alias=alias)


def told(edge: EdgeNode, message: Message) -> None:
    """Do what a command says. `update` takes names only, so the client itself says what has an alias alone."""
    for one in message.payload.metrics:
        new = metric(one.name, one.datatype, one.value, one.alias)
        device = message.topic.device_id
        if one.name == REBIRTH:
            births.put(None)
        elif one.name is None:
            kind, data = (MessageType.NDATA, NData) if device is None else (MessageType.DDATA, DData)
            topic = Topic(edge.group_id, kind, edge.edge_node_id, device)
            client.publish(Message(topic, data(get_current_timestamp(), 1, (new,)), QoS.AT_MOST_ONCE, retain=False))
        elif device is None:
            edge.update([new])
        else:
            edge.update_device(device, [new])


client = Client(client_id="press-node")
edge = EdgeNode(
    "plant",
    "press",
    [
        metric(REBIRTH, DataType.BOOLEAN, value=False),
        metric("Pump/On", DataType.BOOLEAN, value=False),
        metric("Setpoint", DataType.FLOAT, 20.0),
        metric("Speed", DataType.UINT32, 0, SPEED),
    ],
    client,
    told,
)
edge.register(Device("p-1", [metric("Label", DataType.STRING, ""), metric("Mode", DataType.STRING, "off", MODE)], told))
while True:  # it has no rebirth, but to connect again
    edge.connect(host, port=port)
    births.get()
    edge.disconnect()
