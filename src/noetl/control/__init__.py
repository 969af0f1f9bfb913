"""The control plane: the one place where executions are decided, as a plain asynchronous object."""
