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
            top = sdist.name.removesuffix(".tar.gz")
            with tarfile.open(sdist) as tar:
                for member, name in (f"{top}/inflection/__init__.py", "inflection.py"), (f"{top}/test_inflection.py",) * 2:
                    file = tar.extractfile(member)
                    assert file is not None
                    (folder / Path(name).name).write_bytes(file.read())
    shutil.copy(PINS, ready)
    return folder


if __name__ == "__main__":
    fetch(Path(sys.argv[1]))
