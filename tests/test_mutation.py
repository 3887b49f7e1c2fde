"""The tests notice when a law breaks: see mutate.py."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

MODULES = [
    "alphabeta", "checkpoint", "cluster", "collectives", "estimate", "experts", "overhead", "parallel", "planner",
    "schedules", "sgd", "sharded", "step", "transformer",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("module", MODULES)
def test_no_constant_or_sign_can_change_unnoticed(module):
    script = Path(__file__).with_name("mutate.py")
    utf8 = os.environ | {"PYTHONUTF8": "1"}
    run = subprocess.run([sys.executable, script, module], capture_output=True, encoding="utf-8", env=utf8)
    assert run.returncode == 0, run.stdout + run.stderr
