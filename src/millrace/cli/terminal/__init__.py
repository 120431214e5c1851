"""What commands share at a terminal: options, errors, tables, a client for the length of a command."""
