"""Figures of single parts on real processes: `python -m homing_rig.figures --help`. docs/performance.md has results."""
