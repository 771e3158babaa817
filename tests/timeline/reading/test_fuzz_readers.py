"""No text, and no damage to a real one, makes a reader raise anything but its own errors.

For ten minutes: python -m studies.fuzz.readers
"""

import pytest
from hypothesis import settings

from studies.fuzz import readers


@pytest.mark.parametrize("target", readers.TARGETS, ids=lambda target: target.__name__)
def test_nothing_escapes(target, tmp_path):
    readers.look(target, tmp_path, settings(max_examples=15, deadline=None, database=None))
