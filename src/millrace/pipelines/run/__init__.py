"""A running pipeline: its plan, its queries, their supervision and their checkpoints."""
