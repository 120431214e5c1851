"""Coordinators over internal topics: decide, append, replay."""
