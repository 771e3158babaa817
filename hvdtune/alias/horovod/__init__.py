"""Horovod's names, meaning hvdtune; where Horovod is installed, Horovod instead.

`__version__` is the Horovod whose names and meanings these are, for scripts that compare it;
`hvdtune.__version__` is hvdtune's own.
"""

import importlib.util
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

__version__ = "0.28.1"


def _installed_horovod() -> ModuleSpec | None:
    # PYTHONPATH, where this folder is, comes before site-packages. In a job that a job has started
    # another hvdtune's folder may be there, too: the two would hand the import on for ever.
    elsewhere = [path for path in sys.path if Path(path).parts[-2:] != ("hvdtune", "alias")]
    for finder in sys.meta_path:  # an editable installation has a finder of its own
        spec = finder.find_spec("horovod", elsewhere)
        if spec is not None and spec.origin not in (None, __file__):  # a bare folder has no origin
            return spec
    return None


_found = _installed_horovod() if __name__ == "horovod" else None
if _found is None:
    from hvdtune.launcher.function import run

    from . import _absent

    _absent.watch_imports()
else:
    _module = importlib.util.module_from_spec(_found)
    sys.modules[__name__] = _module
    assert _found.loader is not None
    _found.loader.exec_module(_module)
