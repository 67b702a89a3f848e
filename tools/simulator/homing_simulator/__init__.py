"""A fleet of simulated MQTT devices, which answer as devices of a family do, faults included."""
