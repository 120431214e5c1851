"""The machine's memory and CPU time, as the measurements need and see them."""
