"""Durations, under the name that those know who read playbooks; they are parsed in `records/durations.py`."""

from noetl.records.durations import AS_WRITTEN, LONGEST, parse_duration, write_duration

__all__ = ["AS_WRITTEN", "LONGEST", "parse_duration", "write_duration"]
