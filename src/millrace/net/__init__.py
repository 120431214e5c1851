"""Network: listeners, connections and their backpressure; knows frames, not what is in them."""
