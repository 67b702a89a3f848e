"""What every part of a process lives on: services, tasks, threads, clocks, counters, traces."""
