"""Stale generated code and ill-formed protos are noticed; each is planted on a copy."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MESSAGES = "daemon/steprail_daemon/expressions/messages"


class Copy:
    """A copy of the protos and of the package made from them, and the tools that judge it."""

    def __init__(self, root: Path) -> None:
        self.protos = root / "protos"
        self.package = root / "v1"
        self.messages = root / MESSAGES
        shutil.copytree(ROOT / "protos", self.protos)
        shutil.copytree(ROOT / MESSAGES, self.messages, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(
            ROOT / "clients/python/src/steprail/v1", self.package, ignore=shutil.ignore_patterns("__pycache__")
        )

    def edit_proto(self, name: str, old: str, new: str) -> None:
        path = self.protos / "steprail" / "v1" / name
        text = path.read_text()
        assert text.count(old) == 1
        path.write_text(text.replace(old, new))

    def fresh(self) -> subprocess.CompletedProcess[str]:
        options = ["--check", "--protos", str(self.protos), "--package", str(self.package)]
        options += ["--messages", str(self.messages)]
        return run(sys.executable, str(ROOT / "scripts" / "generate.py"), *options)

    def buf(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return run(str(Path(sys.executable).with_name("buf")), *arguments)


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    return Copy(tmp_path)


def test_the_committed_code_is_fresh(copy: Copy) -> None:
    done = copy.fresh()
    assert (done.returncode, done.stderr) == (0, "")


def test_an_edited_module_is_stale(copy: Copy) -> None:
    with (copy.package / "runs_pb2.py").open("a") as file:
        file.write("# mended by hand\n")
    done = copy.fresh()
    assert done.returncode == 1
    assert "runs_pb2.py: stale" in done.stderr


def test_a_changed_proto_makes_code_and_stub_stale(copy: Copy) -> None:
    copy.edit_proto("errors.proto", "bool retryable = 4;", "bool retryable = 4;\n  bool planted = 90;")
    done = copy.fresh()
    assert done.returncode == 1
    assert "errors_pb2.py: stale" in done.stderr
    assert "errors_pb2.pyi: stale" in done.stderr


def test_a_module_without_a_proto_is_left_over_and_one_not_written_is_missing(copy: Copy) -> None:
    (copy.package / "steps_pb2.pyi").rename(copy.package / "strides_pb2.pyi")
    done = copy.fresh()
    assert done.returncode == 1
    assert "steps_pb2.pyi: missing" in done.stderr
    assert "strides_pb2.pyi: left over" in done.stderr


def test_a_changed_proto_of_the_daemons_own_messages_makes_them_stale(copy: Copy) -> None:
    with (copy.messages / "view.proto").open("a") as file:
        file.write("message Planted {}\n")
    done = copy.fresh()
    assert done.returncode == 1
    assert "view_pb2.py: stale" in done.stderr
    assert "view_pb2.pyi: stale" in done.stderr


def test_a_proto_that_does_not_compile_is_an_error_of_its_own(copy: Copy) -> None:
    copy.edit_proto("errors.proto", "bool retryable = 4;", "boolean retryable = 4;")
    done = copy.fresh()
    assert done.returncode == 2
    assert "errors.proto" in done.stderr


def test_an_enum_value_without_its_prefix_fails_the_lint(copy: Copy) -> None:
    assert copy.buf("lint", str(copy.protos)).returncode == 0
    copy.edit_proto("errors.proto", "FAILURE_FAULT_AGENT = 1;", "AGENT = 1;")
    done = copy.buf("lint", str(copy.protos))
    assert done.returncode != 0
    assert 'should be prefixed with "FAILURE_FAULT_"' in done.stdout
