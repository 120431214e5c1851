"""Run the load named by the first argument with the JSON parameters of the second, and print its figures."""

import json
import sys

from benchmarks.loads import LOADS
from benchmarks.machine import memory
from benchmarks.target import Target


def main() -> None:
    name, request = sys.argv[1], json.loads(sys.argv[2])
    memory.keep_freed()
    target = Target(request["bootstrap"], request["pid"])
    print(json.dumps(LOADS[name](target, **request["parameters"])))


if __name__ == "__main__":
    main()
