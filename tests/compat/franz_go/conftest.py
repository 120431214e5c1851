import shutil
import subprocess
from pathlib import Path

import pytest

SOURCES = Path(__file__).parent
DOWNLOAD_SECONDS = 120
BUILD_SECONDS = 150


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled checks; skips, with a reason, without Go or without a network to fetch the modules."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("no Go found; install Go 1.26 or newer")
    try:
        fetched = _run(go, "mod", "download", seconds=DOWNLOAD_SECONDS)
    except subprocess.TimeoutExpired:
        pytest.skip(f"the modules of {SOURCES / 'go.mod'} were not fetched within {DOWNLOAD_SECONDS} s")
    # A module that differs from go.sum must fail, not skip.
    if fetched.returncode and "checksum mismatch" not in fetched.stderr:
        pytest.skip(f"the modules of {SOURCES / 'go.mod'} cannot be fetched: {fetched.stderr.strip()}")
    program = tmp_path_factory.mktemp("franz-go") / "checks"
    # Without optimizations, the first build takes a third less time.
    built = _run(go, "build", "-gcflags=all=-N -l", "-o", str(program), ".", seconds=BUILD_SECONDS)
    assert built.returncode == 0, built.stderr
    return program


def _run(*command: str, seconds: float) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=SOURCES, capture_output=True, text=True, timeout=seconds, check=False)
