"""Distributed RPC: calls that flow through a topology and return to their callers."""
