"""The nodes, devices and callers of homing_rig."""

from __future__ import annotations

from homing_rig.harness import Caller, Cluster, Device, Json, NodeProcess, Reaction, Tally, caller, cluster_of, devices

__all__ = [
    "Caller",
    "Cluster",
    "Device",
    "Json",
    "NodeProcess",
    "Reaction",
    "Tally",
    "caller",
    "cluster_of",
    "devices",
]
