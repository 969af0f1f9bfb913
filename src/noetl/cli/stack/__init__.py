"""Processes that outlive the command that starts them: PostgreSQL, NATS, servers, workers."""
