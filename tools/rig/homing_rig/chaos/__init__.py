"""The chaos rig: real nodes, real faults, a history, and a checker that judges it."""
