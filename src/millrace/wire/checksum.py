"""CRC-32C, the checksum of record batches and of producer snapshots."""

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from types import ModuleType

from millrace.wire.varint import Buffer


def _extension() -> ModuleType:
    """The package's compiled module by itself.

    The package around it looks up its own version and loads a command line, a twelfth of the broker's start.
    """
    package = find_spec("crc32c")
    spec = package and PathFinder.find_spec("_crc32c", package.submodule_search_locations)
    if spec is None or spec.loader is None:
        import crc32c

        return crc32c
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


crc32c: Callable[[Buffer], int] = _extension().crc32c
