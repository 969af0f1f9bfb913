"""What crosses a boundary between parts of NoETL: events, commands, reports, outcomes, descriptions.

Frozen, keyword-only structs that hold plain data, and the protocols between the parts. Nothing here
decides anything, reads a clock or touches the world. Import the module that holds what is needed.
"""
