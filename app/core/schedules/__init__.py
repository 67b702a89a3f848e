"""Schedules: what is to begin at instants of a timetable, and which of these instants is due."""
