"""Keep what is released of the API: write the image of this version, or check that the protos break none.

An image is a compiled form of the protos, one for each release, in `protos/released/`. It is self-contained, has no
comments, and is the same bytes wherever it is made.

    python scripts/released.py              write the image of the version that the packages have
    python scripts/released.py --rewrite    write it anew, of a version that is still to come
    python scripts/released.py --check      exit 1, and name each release that the protos break, with the places
"""

import argparse
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROTOS = ROOT / "protos"
PACKAGES = (ROOT / "pyproject.toml", ROOT / "clients" / "python" / "pyproject.toml")
BUF = Path(sys.executable).with_name("buf")

_BUF_TIMEOUT_SECONDS = 120
_GIT_TIMEOUT_SECONDS = 20
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


def compiled(protos: Path) -> bytes:
    """Give the image of protos.

    Raises:
        ReleaseError: they do not compile.
    """
    with tempfile.TemporaryDirectory() as directory:
        image = Path(directory, "image.binpb")
        done = _buf("build", str(protos), "--exclude-source-info", "--output", str(image))
        if done.returncode:
            raise ReleaseError(f"{protos} cannot be compiled:\n{done.stdout}{done.stderr}")
        return image.read_bytes()


def write(content: bytes, image: Path, *, rewrite: bool) -> None:
    """Write an image. One that is there with other content is written anew only if that is wanted, and it is not out.

    Raises:
        ReleaseError: it stays as it is.
    """
    if image.exists() and image.read_bytes() != content:
        if not rewrite:
            raise ReleaseError(
                f"{image} is there and has another API: give the packages a new version, or, if {image.stem} is not out"
                " yet, take up what was added with --rewrite (make release-protos REWRITE=1)"
            )
        found = tags(image.parent, image.stem)
        if found:
            raise ReleaseError(f"{image.stem} is out, by the tag {found[0]}: {image} is not written again")
    image.parent.mkdir(parents=True, exist_ok=True)
    image.write_bytes(content)


def tags(directory: Path, version: str) -> list[str]:
    """Give the tags of a version in the repository that a directory is in.

    Raises:
        ReleaseError: it is in none, or git cannot be asked.
    """
    command = ["git", "-C", str(directory), "tag", "--list", version, f"v{version}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_GIT_TIMEOUT_SECONDS, check=False)
    except FileNotFoundError:
        raise ReleaseError(f"whether {version} is out cannot be known: there is no git") from None
    if done.returncode:
        raise ReleaseError(f"whether {version} is out cannot be known: {done.stderr.strip()}")
    return done.stdout.split()


def check(protos: Path) -> list[str]:
    """Hold protos against every image below them, and say of each release that they break where."""
    # `buf breaking` ends with the same code where they do not even compile.
    compiled(protos)
    broken = [(image, breaks(protos, image)) for image in images(protos / "released")]
    return [f"the protos break release {image.stem}:\n{places}" for image, places in broken if places]


def release(protos: Path, *, rewrite: bool) -> list[str]:
    """Write the image of this version, unless the protos break a release; gives what `check` gives.

    Where the image of a version that is still to come is written anew, whatever it had stays protected.
    """
    released = protos / "released"
    # The first image of all has none to be held against.
    broken = check(protos) if any(released.glob("*.binpb")) else []
    if not broken:
        image = released / f"{version()}.binpb"
        write(compiled(protos), image, rewrite=rewrite)
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
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--check", action="store_true", help="write nothing; exit 1 if the protos break a release")
    what.add_argument("--rewrite", action="store_true", help="write an image that is there anew, if no tag has it")
    parser.add_argument("--protos", type=Path, default=PROTOS, help="directory of the API's .proto files")
    options = parser.parse_args()
    try:
        broken = check(options.protos) if options.check else release(options.protos, rewrite=options.rewrite)
    except ReleaseError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stderr.write("".join(broken))
    if broken:
        sys.stderr.write("what is released is never removed, renumbered or retyped: add a new field beside it\n")
    return 1 if broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
