"""Control flow as a function: events in, events and commands out.

`state.py` says what an execution is at any moment, `fold.py` how each event changes it, and
`decide.py` what follows from a report, a timer or a request. `pipeline.py` is the interpreter of a
step's body, which the worker drives. Nothing here awaits, logs, reads a clock or draws a random
number: time, ids and stored bodies come in as values.
"""
