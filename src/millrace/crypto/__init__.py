"""TLS contexts and password proofs, for brokers and clients alike."""
