"""Network: listeners, connections and flow control. Knows frames, not their content."""
