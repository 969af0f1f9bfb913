"""The tool kinds: one file each, with its fields and its description.

Start-up matters, so nothing is imported here; `registry` finds a kind by name and imports it alone.
"""
