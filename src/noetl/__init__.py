"""NoETL: playbooks in YAML, run by one engine whose every decision is an event in one log."""

__version__ = "0.1.0"
