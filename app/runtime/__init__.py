"""The ground on which every part of a process stands: services, tasks, threads, clocks, counters, traces."""
