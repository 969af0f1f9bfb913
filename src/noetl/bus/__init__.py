"""Wake-ups for idle workers, and the connection to NATS. Nothing here is needed for a result to be right."""
