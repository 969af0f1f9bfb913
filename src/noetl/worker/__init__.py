"""The worker: takes work from the control plane, runs its pipelines, calls tools, reports."""
