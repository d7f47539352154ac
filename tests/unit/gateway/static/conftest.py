"""The pages' scripts, for Node."""

from __future__ import annotations

import pytest

from tests.scripts import Scripts


@pytest.fixture(scope="session")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Scripts:
    return Scripts(tmp_path_factory.mktemp("scripts"))
