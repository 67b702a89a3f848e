"""`homing analyze --follow`: one-minute windows, burn rates and alerts from a log that is being written."""
