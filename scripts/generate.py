"""Generate `steprail.v1` from `protos/`, or check that what is committed is what the generator gives.

The generator lives in an environment of its own (requirements/proto.txt), because its age sets the oldest protobuf and
grpcio that the package runs with. By default that is the environment beside the one that runs this script, with
`-proto` at the end of its name; `make proto` and `make check` build it.

    python scripts/generate.py            write the package
    python scripts/generate.py --check    exit 1 and name each file that is stale, missing or left over
"""

import argparse
import filecmp
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROTOS = ROOT / "protos"
PACKAGE = ROOT / "clients" / "python" / "src" / "steprail" / "v1"
GENERATOR = Path(f"{sys.prefix}-proto") / "bin" / "python"

_INIT = '"""Generated protobuf messages and gRPC stubs of the package `steprail.v1`. Never edited by hand."""\n'
_PROTOC_TIMEOUT_SECONDS = 120


class GeneratorError(Exception):
    """protoc is not there or refused the input; the text is what to show."""


def generate(protos: Path, out: Path, generator: Path) -> None:
    """Write the package made from `protos` into the directory `out`, which is created.

    Raises:
        GeneratorError: the generator's environment is missing, or protoc failed.
    """
    if not generator.exists():
        raise GeneratorError(f"no generator at {generator}: run `make proto`")
    with tempfile.TemporaryDirectory() as scratch:
        _run_protoc(protos, Path(scratch), generator)
        out.mkdir(parents=True, exist_ok=True)
        for made in sorted((Path(scratch) / "steprail" / "v1").iterdir()):
            (out / made.name).write_bytes(made.read_bytes())
    (out / "__init__.py").write_text(_INIT)


def _run_protoc(protos: Path, out: Path, generator: Path) -> None:
    plugins = [f"--plugin={name}={generator.parent / name}" for name in ("protoc-gen-mypy", "protoc-gen-mypy_grpc")]
    outputs = [f"--{kind}_out={out}" for kind in ("python", "grpc_python", "mypy", "mypy_grpc")]
    sources = sorted(str(path.relative_to(protos)) for path in protos.glob("steprail/v1/*.proto"))
    command = [str(generator), "-m", "grpc_tools.protoc", f"--proto_path={protos}", *plugins, *outputs, *sources]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_PROTOC_TIMEOUT_SECONDS, check=False)
    if done.returncode != 0:
        raise GeneratorError(f"protoc failed with exit code {done.returncode}:\n{done.stderr}")


def differences(expected: Path, actual: Path) -> list[str]:
    """Say for each file of two package directories how `actual` differs from `expected`; empty when it does not."""
    wanted = {path.name for path in expected.iterdir()}
    present = {path.name for path in actual.iterdir() if path.is_file()} if actual.is_dir() else set()
    stale = [name for name in wanted & present if not filecmp.cmp(expected / name, actual / name, shallow=False)]
    found = [(name, "missing") for name in wanted - present]
    found += [(name, "left over") for name in present - wanted]
    found += [(name, "stale") for name in stale]
    return [f"{name}: {what}" for name, what in sorted(found)]


def check(protos: Path, package: Path, generator: Path) -> list[str]:
    """Generate into a scratch directory and return how `package` differs from it."""
    with tempfile.TemporaryDirectory() as scratch:
        expected = Path(scratch) / "v1"
        generate(protos, expected, generator)
        return differences(expected, package)


def write(protos: Path, package: Path, generator: Path) -> None:
    """Generate into `package` and remove the files there that no proto gives any more."""
    generate(protos, package, generator)
    for line in check(protos, package, generator):
        (package / line.partition(":")[0]).unlink()


def main() -> int:
    """Run the command line; the result is the exit code."""
    parser = argparse.ArgumentParser(description="Generate steprail.v1 from protos/.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the committed code is stale")
    parser.add_argument("--protos", type=Path, default=PROTOS, help="directory of the .proto files")
    parser.add_argument("--package", type=Path, default=PACKAGE, help="directory of the generated package")
    parser.add_argument("--generator", type=Path, default=GENERATOR, help="Python of the generator's environment")
    options = parser.parse_args()
    try:
        if not options.check:
            write(options.protos, options.package, options.generator)
            return 0
        found = check(options.protos, options.package, options.generator)
    except GeneratorError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    for line in found:
        sys.stderr.write(f"{line}\n")
    if found:
        sys.stderr.write("generated code does not match protos/: run `make proto` and commit the result\n")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
