"""Bytes to messages and back; no I/O."""
