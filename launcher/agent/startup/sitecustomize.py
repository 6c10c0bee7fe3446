"""First on PYTHONPATH of a rank's interpreter: starts the recorder's hook, then runs the user's own sitecustomize.

Standard library only. The directory of this file leaves `sys.path` again, so nothing else can be found in it.
"""

import importlib.machinery
import importlib.util
import os
import sys


def _start_hook(here: str) -> None:
    path = os.path.join(os.path.dirname(here), "recorder_hook.py")  # noqa: PTH118, PTH120 - pathlib costs 10 ms here
    spec = importlib.util.spec_from_file_location("_dlaunch_recorder_hook", path)
    if spec and spec.loader:
        hook = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(hook)
        hook.start()


def _run_next(here: str) -> None:
    """Run the sitecustomize that Python would have found without ours."""
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != here]  # noqa: PTH100
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec and spec.loader:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


_here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
try:
    _start_hook(_here)
except Exception as error:  # the user's program starts whatever happens to ours
    sys.stderr.write(f"dlaunch: no dumps on demand: {error}\n")
_run_next(_here)
