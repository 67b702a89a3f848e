"""A thing that executes AWS IoT Commands, on the MQTT 5 client that AWS ships for devices."""

from __future__ import annotations

import json
import sys
import threading

from awscrt import mqtt5

host, port = sys.argv[1], int(sys.argv[2])
COMMANDS = "$aws/commands/things/thing-1/executions/"


def connected(_data: object) -> None:
    """On every connection."""
    wanted = mqtt5.Subscription(f"{COMMANDS}+/request/json", mqtt5.QoS.AT_LEAST_ONCE)
    client.subscribe(mqtt5.SubscribePacket([wanted]))


def heard(data: mqtt5.PublishReceivedData) -> None:
    """In progress first, and then what the payload says."""
    packet = data.publish_packet
    execution = packet.topic.split("/")[5]
    asked = json.loads(packet.payload)
    ended = {"status": "SUCCEEDED", "result": {"message": {"s": json.dumps(asked)}}}
    if asked.get("fail"):
        ended = {"status": "FAILED", "statusReason": {"reasonCode": "LOW_BATTERY", "reasonDescription": "12 %"}}
    for said in ({"status": "IN_PROGRESS"}, ended):
        client.publish(
            mqtt5.PublishPacket(
                topic=f"{COMMANDS}{execution}/response/json",
                payload=json.dumps(said).encode(),
                qos=mqtt5.QoS.AT_LEAST_ONCE,
            )
        )


client = mqtt5.Client(
    mqtt5.ClientOptions(
        host_name=host,
        port=port,
        connect_options=mqtt5.ConnectPacket(client_id="thing-1"),
        on_publish_callback_fn=heard,
        on_lifecycle_event_connection_success_fn=connected,
    )
)
client.start()
threading.Event().wait()
