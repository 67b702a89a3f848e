"""The MQTT border: the port, the paho adapter on the event loop, and an in-process loopback."""
