"""The examples lie beside the package; tests find them from wherever they are started."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
