"""Bodies of large results: stored outside the log, checked when they are loaded."""
