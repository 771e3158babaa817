"""Imported first by a server that ranks are forked from: the core with AddressSanitizer."""

from tests.memory.sanitized import BUILD
from tests.parallel import failpoint_native

failpoint_native.install(BUILD)
