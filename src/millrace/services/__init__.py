"""The shared parts of HTTP services: serving, errors, access checks and secrets."""
