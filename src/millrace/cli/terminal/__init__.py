"""Parts that commands share: options, errors, tables, and a client for the length of a command."""
