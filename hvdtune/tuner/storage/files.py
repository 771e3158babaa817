"""Files that a reader never sees half written."""

import os
from pathlib import Path


def replace_file(path: Path, text: str) -> None:
    """Write through a temporary file beside `path`, so that a reader never sees half of it."""
    part = path.with_name(path.name + ".part")
    try:
        part.write_text(text, encoding="utf-8")
        os.replace(part, path)
    except OSError as error:
        # A write, unlike an open, does not say which file.
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        part.unlink(missing_ok=True)
