"""Imported first by a server that ranks are forked from: the core with AddressSanitizer."""

import sys

from tests.memory.sanitized import BUILD
from tests.parallel import failpoint_native

assert "hvdtune.core._native" not in sys.modules, "the core without AddressSanitizer is imported"
failpoint_native.install(BUILD)
