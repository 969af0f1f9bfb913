"""`python -m noetl`: the command line where its script is not on the path."""

from __future__ import annotations

from noetl.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
