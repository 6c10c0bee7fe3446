"""What stands for Python in submitit's batch script: `slurm_python.py -u -m MODULE ARGUMENTS`, run by its path.

submitit imports numpy for the sake of pickled arrays. Ours holds none, and a supervisor need not wait for numpy, least
of all on a network file system. The folder in which the user submitted is no place to import from.
"""

from __future__ import annotations

import runpy
import sys


def main() -> None:
    del sys.path[0]
    sys.modules["numpy"] = None  # type: ignore[assignment] # an import of it fails, which submitit foresees
    sys.argv = sys.argv[sys.argv.index("-m") + 1 :]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
