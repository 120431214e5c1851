"""Topologies as their authors write them: streams, the operators between them, and their fields."""
