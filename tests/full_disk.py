"""A disk without room: the system ends every file at a size; writing beyond it fails for real."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def files_end_at(nbytes: int) -> Iterator[None]:
    """Within the block, a file of this process that would become longer raises OSError."""
    resource = pytest.importorskip("resource")  # Windows has none
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
