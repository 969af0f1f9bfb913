"""Where executions are kept: one protocol, one implementation for each database."""
