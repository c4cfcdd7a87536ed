"""What the studies take from `examples/judge`: its criteria, measures and networks."""

import sys
from importlib import import_module
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "judge"))  # its modules stand there
criteria, measures, networks = map(import_module, ("criteria", "measures", "networks"))
