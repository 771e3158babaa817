"""Horovod's names for programs that `hvdtune run` did not start.

    import hvdtune.alias
    import horovod.torch as hvd  # hvdtune, or Horovod where it is installed

Under `hvdtune run` the folder of this package is on the ranks' PYTHONPATH, and nothing is needed.
"""

import sys
from pathlib import Path

_FOLDER = str(Path(__file__).parent)
if _FOLDER not in sys.path:
    sys.path.append(_FOLDER)
