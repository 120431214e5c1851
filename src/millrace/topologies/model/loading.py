"""Loading a topology from the file that its author wrote."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from millrace.topologies.model.errors import TopologyError
from millrace.topologies.model.topology import Topology


def load_topology(path: Path, class_name: str | None = None) -> type[Topology]:
    """The topology of a file: the named class, or the only one in it."""
    if not path.is_file():
        raise TopologyError(f"there is no file {path}")
    name = f"millrace_topology_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise TopologyError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    # What lies beside the file can be imported, as with `python FILE`.
    if str(path.parent.resolve()) not in sys.path:
        sys.path.insert(0, str(path.parent.resolve()))
    try:
        spec.loader.exec_module(module)
    except TopologyError as error:
        raise TopologyError(f"{path}: {error}") from error
    except Exception as error:
        raise TopologyError(f"{path} cannot be imported: {type(error).__name__}: {error}") from error
    found = {
        candidate.__name__: candidate
        for candidate in vars(module).values()
        if isinstance(candidate, type)
        and issubclass(candidate, Topology)
        and candidate.specs
        and candidate.__module__ == name
    }
    if class_name is not None:
        if class_name not in found:
            raise TopologyError(f"{path} has no topology {class_name}; it has {', '.join(found) or 'none'}")
        return found[class_name]
    if len(found) != 1:
        raise TopologyError(
            f"{path} has {len(found) or 'no'} topologies"
            + (f": {', '.join(found)}; choose one with --class" if found else "; subclass Topology in it")
        )
    return next(iter(found.values()))
