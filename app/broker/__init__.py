"""The MQTT broker in a node: the sockets of `app/core/broker`, and its plane."""
