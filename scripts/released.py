"""Keep what is released of the API: write the image of this version, or check that the protos break none.

An image is a compiled form of the protos, one for each release, in `protos/released/`. It is self-contained, has no
comments, and is the same bytes wherever it is made.

    python scripts/released.py            write the image of the version that the packages have
    python scripts/released.py --check    exit 1, and name each release that the protos break, with the places
"""

import argparse
import os
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROTOS = ROOT / "protos"
PACKAGES = (ROOT / "pyproject.toml", ROOT / "clients" / "python" / "pyproject.toml")
BUF = Path(sys.executable).with_name("buf")

_BUF_TIMEOUT_SECONDS = 120
#: What `buf breaking` ends with where it ran and found something.
_FOUND = 100


class ReleaseError(Exception):
    """An image cannot be written or held against the protos; the text is what to show."""


def version(packages: tuple[Path, ...] = PACKAGES) -> str:
    """Give the version of the packages.

    Raises:
        ReleaseError: they do not have the same.
    """
    found = {str(tomllib.loads(path.read_text())["project"]["version"]) for path in packages}
    if len(found) != 1:
        raise ReleaseError(f"the packages have different versions, {', '.join(sorted(found))}: give them the same")
    return found.pop()


def images(released: Path) -> list[Path]:
    """Give the images of a directory.

    Raises:
        ReleaseError: there is none, so that nothing would be compared.
    """
    found = sorted(released.glob("*.binpb"))
    if not found:
        raise ReleaseError(f"{released} has no image of a release: nothing to compare with")
    return found


def breaks(protos: Path, image: Path) -> str:
    """Say how protos break a release: a line for each place, empty if they do not.

    Raises:
        ReleaseError: they could not be compared.
    """
    done = _buf("breaking", str(protos), "--against", str(image))
    if done.returncode not in {0, _FOUND}:
        raise ReleaseError(f"{protos} cannot be held against {image}:\n{done.stderr or done.stdout}")
    return done.stdout if done.returncode else ""


def write(protos: Path, image: Path) -> None:
    """Write the image of protos.

    Raises:
        ReleaseError: they do not compile.
    """
    image.parent.mkdir(parents=True, exist_ok=True)
    done = _buf("build", str(protos), "--exclude-source-info", "--output", str(image))
    if done.returncode:
        raise ReleaseError(f"{protos} cannot be compiled:\n{done.stdout}{done.stderr}")


def check(protos: Path) -> list[str]:
    """Hold protos against every image below them, and say of each release that they break where."""
    # `buf breaking` ends with the same code where they do not even compile.
    write(protos, Path(os.devnull))
    broken = [(image, breaks(protos, image)) for image in images(protos / "released")]
    return [f"the protos break release {image.stem}:\n{places}" for image, places in broken if places]


def release(protos: Path) -> list[str]:
    """Write the image of this version, unless the protos break a release; gives what `check` gives.

    An image of a version that is not out yet is written anew: whatever it had stays protected.
    """
    released = protos / "released"
    # The first image of all has none to be held against.
    broken = check(protos) if any(released.glob("*.binpb")) else []
    if not broken:
        image = released / f"{version()}.binpb"
        write(protos, image)
        sys.stdout.write(f"{image} has the API of this version; commit it\n")
    return broken


def _buf(*arguments: str) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            [BUF, *arguments], capture_output=True, text=True, timeout=_BUF_TIMEOUT_SECONDS, check=False
        )
    except FileNotFoundError:
        raise ReleaseError(f"there is no {BUF}: run `make setup`") from None


def main() -> int:
    """Run the command line; the result is the exit code."""
    parser = argparse.ArgumentParser(description="Keep what is released of the API.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the protos break a release")
    parser.add_argument("--protos", type=Path, default=PROTOS, help="directory of the API's .proto files")
    options = parser.parse_args()
    try:
        broken = check(options.protos) if options.check else release(options.protos)
    except ReleaseError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stderr.write("".join(broken))
    if broken:
        sys.stderr.write("what is released is never removed, renumbered or retyped: add a new field beside it\n")
    return 1 if broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
