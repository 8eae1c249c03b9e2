"""Generate the protobuf packages, or check that what is committed is what the generator gives.

There are two: the public `steprail.v1` from `protos/`, with gRPC stubs, and the daemon's own messages for expressions,
which lie beside their protos and have no services.

The generator lives in an environment of its own (requirements/proto.txt), because its age sets the oldest protobuf and
grpcio that the package runs with. By default that is the environment beside the one that runs this script, with
`-proto` at the end of its name; `make proto` and `make check` build it.

    python scripts/generate.py            write the packages
    python scripts/generate.py --check    exit 1 and name each file that is stale, missing or left over
"""

import argparse
import filecmp
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROTOS = ROOT / "protos"
PACKAGE = ROOT / "clients" / "python" / "src" / "steprail" / "v1"
MESSAGES = ROOT / "daemon" / "steprail_daemon" / "expressions" / "messages"
GENERATOR = Path(f"{sys.prefix}-proto") / "bin" / "python"

_INIT = '"""Generated protobuf messages and gRPC stubs of the package `steprail.v1`. Never edited by hand."""\n'
_MESSAGES_INIT = '"""Messages generated from the protos beside them. Never edited by hand."""\n'
_PROTOC_TIMEOUT_SECONDS = 120


@dataclass(frozen=True)
class Package:
    """A package to generate.

    `sources` is the directory of its protos, `depth` how many directories up their names in imports begin; `out` is
    where the modules go.
    """

    sources: Path
    depth: int
    out: Path
    services: bool
    init: str

    @property
    def root(self) -> Path:
        """The directory from which protos import each other."""
        return self.sources.parents[self.depth - 1]

    @property
    def name(self) -> Path:
        """The package's directory below the root."""
        return self.sources.relative_to(self.root)


def public(protos: Path, out: Path) -> Package:
    """Give the package of the API, from the directory `protos` to the directory `out`."""
    return Package(protos / "steprail" / "v1", 2, out, services=True, init=_INIT)


def messages(directory: Path) -> Package:
    """Give the package of the expressions' own messages, in the directory of its protos."""
    return Package(directory, 3, directory, services=False, init=_MESSAGES_INIT)


class GeneratorError(Exception):
    """protoc is not there or refused the input; the text is what to show."""


def generate(package: Package, out: Path, generator: Path) -> None:
    """Write the modules of a package into the directory `out`, which is created.

    Raises:
        GeneratorError: the generator's environment is missing, or protoc failed.
    """
    if not generator.exists():
        raise GeneratorError(f"no generator at {generator}: run `make proto`")
    with tempfile.TemporaryDirectory() as scratch:
        _run_protoc(package, Path(scratch), generator)
        out.mkdir(parents=True, exist_ok=True)
        for made in sorted((Path(scratch) / package.name).iterdir()):
            (out / made.name).write_bytes(made.read_bytes())
    (out / "__init__.py").write_text(package.init)


def _run_protoc(package: Package, out: Path, generator: Path) -> None:
    kinds = ["python", "mypy"]
    if package.services:
        kinds += ["grpc_python", "mypy_grpc"]
    plugins = [f"--plugin=protoc-gen-{kind}={generator.parent}/protoc-gen-{kind}" for kind in ("mypy", "mypy_grpc")]
    outputs = [f"--{kind}_out={out}" for kind in kinds]
    sources = sorted(str(path.relative_to(package.root)) for path in package.sources.glob("*.proto"))
    command = [str(generator), "-m", "grpc_tools.protoc", f"--proto_path={package.root}", *plugins, *outputs, *sources]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_PROTOC_TIMEOUT_SECONDS, check=False)
    if done.returncode != 0:
        raise GeneratorError(f"protoc failed with exit code {done.returncode}:\n{done.stderr}")


def differences(expected: Path, actual: Path) -> list[str]:
    """Say for each module of two package directories how `actual` differs from `expected`; empty when it does not."""
    wanted = {path.name for path in expected.iterdir()}
    present = {path.name for path in actual.iterdir() if _is_module(path)} if actual.is_dir() else set()
    stale = [name for name in wanted & present if not filecmp.cmp(expected / name, actual / name, shallow=False)]
    found = [(name, "missing") for name in wanted - present]
    found += [(name, "left over") for name in present - wanted]
    found += [(name, "stale") for name in stale]
    return [f"{name}: {what}" for name, what in sorted(found)]


def _is_module(path: Path) -> bool:
    return path.is_file() and path.suffix != ".proto"


def check(package: Package, generator: Path) -> list[str]:
    """Generate into a scratch directory and return how the package differs from it."""
    with tempfile.TemporaryDirectory() as scratch:
        expected = Path(scratch) / "expected"
        generate(package, expected, generator)
        return differences(expected, package.out)


def write(package: Package, generator: Path) -> None:
    """Generate a package in its place and remove the files there that no proto gives any more."""
    generate(package, package.out, generator)
    for line in check(package, generator):
        (package.out / line.partition(":")[0]).unlink()


def main() -> int:
    """Run the command line; the result is the exit code."""
    parser = argparse.ArgumentParser(description="Generate the protobuf packages.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the committed code is stale")
    parser.add_argument("--protos", type=Path, default=PROTOS, help="directory of the API's .proto files")
    parser.add_argument("--package", type=Path, default=PACKAGE, help="directory of steprail.v1")
    parser.add_argument("--messages", type=Path, default=MESSAGES, help="directory of the expressions' own messages")
    parser.add_argument("--generator", type=Path, default=GENERATOR, help="Python of the generator's environment")
    options = parser.parse_args()
    packages = [public(options.protos, options.package), messages(options.messages)]
    try:
        if not options.check:
            for package in packages:
                write(package, options.generator)
            return 0
        found = [line for package in packages for line in check(package, options.generator)]
    except GeneratorError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    for line in found:
        sys.stderr.write(f"{line}\n")
    if found:
        sys.stderr.write("generated code does not match its protos: run `make proto` and commit the result\n")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
