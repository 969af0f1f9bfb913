"""The control plane and the HTTP API from afar: what workers and the command line speak to a server with."""
