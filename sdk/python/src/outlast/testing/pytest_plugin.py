"""The pytest fixture `outlast_server`; pytest loads this module by its entry point."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .server import Server


@pytest.fixture(scope="session")
def outlast_server() -> Iterator[Server]:
    """The real server, one for the session: `url`, `key`. It needs OUTLAST_BIN, or `outlast` on the PATH."""
    # Imported late, so that pytest starts as fast as without this plugin.
    from .server import start_outlast

    with start_outlast() as server:
        yield server
