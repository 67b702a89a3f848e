"""The engine that a cluster shares: Lua scripts on Redis or Valkey, and the only place that knows its driver."""
