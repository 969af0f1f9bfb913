"""Who may do what, and the secrets that playbooks name: credentials, tokens, roles, sessions, runtimes."""
