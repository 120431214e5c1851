"""SASL: the server's side of each mechanism."""
