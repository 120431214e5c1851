"""Sessions: subscriptions, messages on their way to a client, and their state in the log."""
