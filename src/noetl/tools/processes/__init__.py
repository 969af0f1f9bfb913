"""Warm, killable processes that run the code of playbooks.

`child`, `plain` and `tracebacks` are what runs inside such a process: they import the standard library
alone, and as little of it as they can, because a process must be ready in a few milliseconds. `process`
is one of them as its parent sees it, `pool` decides which gets what. Nothing is imported here.
"""
