"""The HTTP API over the control plane and the registry. Start with `app.create_app`; it decides nothing."""
