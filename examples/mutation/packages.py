"""Downloads the pinned packages of requirements.txt and unpacks them into one folder.

A guest may have no network, so this program runs here, and the folder is copied into the guest.
"""
from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

PINS = Path(__file__).with_name("requirements.txt")


def fetch(folder: Path) -> Path:
    """Returns the folder, which has inflection.py, its tests and pytest. It downloads them once."""
    ready = folder / "requirements.txt"
    if ready.exists() and ready.read_bytes() == PINS.read_bytes():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as archives:
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
                        "--require-hashes", "--no-binary", "inflection", "-r", str(PINS), "-d", archives], check=True)
        for wheel in Path(archives).glob("*.whl"):
            with zipfile.ZipFile(wheel) as z:
                z.extractall(folder)
        for sdist in Path(archives).glob("*.tar.gz"):
            with tarfile.open(sdist) as tar:
                tar.extractall(archives, filter="data")
            top = Path(archives) / sdist.name.removesuffix(".tar.gz")
            shutil.copy(top / "inflection" / "__init__.py", folder / "inflection.py")
            shutil.copy(top / "test_inflection.py", folder)
    shutil.copy(PINS, ready)
    return folder


if __name__ == "__main__":
    fetch(Path(sys.argv[1]))
