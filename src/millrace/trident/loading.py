"""Loads the Trident topology that a Python file declares."""

from __future__ import annotations

from pathlib import Path

from millrace.pipelines.job_file import load_module, split_job
from millrace.trident.errors import TridentError
from millrace.trident.model.topology import TridentTopology


def load(job: str | Path) -> TridentTopology:
    """Return the topology of a Python file; `job.py:name` selects one of several by name."""
    file, wanted = split_job(job)
    values = vars(load_module(file)).values()
    found = {topology.name: topology for topology in values if isinstance(topology, TridentTopology)}
    if wanted:
        if wanted not in found:
            raise TridentError(f"{file} has no topology called {wanted}; it has {', '.join(found) or 'none'}")
        return found[wanted]
    if len(found) != 1:
        raise TridentError(
            f"{file} has {len(found) or 'no'} Trident topologies"
            + (f": {', '.join(found)}; write {file}:{next(iter(found))}" if found else "; declare one in it")
        )
    return next(iter(found.values()))
