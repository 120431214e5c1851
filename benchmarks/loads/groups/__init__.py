"""Loads of groups and transactions."""
