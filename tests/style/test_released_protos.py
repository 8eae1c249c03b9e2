"""What was released of the API stays: breaking changes are found and named, and the images are what they should be."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from scripts import released

ROOT = Path(__file__).resolve().parents[2]
IMAGES = sorted((ROOT / "protos" / "released").glob("*.binpb"))


class Tree:
    """A copy of the protos, with the images of releases, and the script that judges it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.protos = root / "protos"
        self.released = self.protos / "released"
        shutil.copytree(ROOT / "protos", self.protos)
        # No repository but one that is made here, and nobody's settings.
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        self.environment |= {"GIT_CEILING_DIRECTORIES": str(root.parent), "GIT_CONFIG_GLOBAL": os.devnull}

    def edit(self, old: str, new: str, name: str = "errors.proto") -> int:
        """Replace a text that is there once; gives its line."""
        path = self.protos / "steprail" / "v1" / name
        text = path.read_text()
        assert text.count(old) == 1
        path.write_text(text.replace(old, new))
        return text[: text.index(old)].count("\n") + 1

    def git(self, *command: str) -> None:
        names = ("-c", "user.name=Nobody", "-c", "user.email=nobody@example.org")
        subprocess.run(
            ["git", *names, *command], cwd=self.root, env=self.environment, capture_output=True, timeout=50, check=True
        )

    def add_a_field(self) -> None:
        self.edit("bool retryable = 4;", "bool retryable = 4;\n  // New.\n  bool planted = 90;")

    def images(self) -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in self.released.iterdir()}

    def run(self, *options: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(ROOT / "scripts" / "released.py"), "--protos", str(self.protos), *options]
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=50, check=False)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def test_the_check_of_the_house_holds_the_protos_against_the_releases() -> None:
    recipe = subprocess.run(
        ["make", "--dry-run", "check"], cwd=ROOT, capture_output=True, text=True, timeout=50, check=True
    )
    assert "scripts/released.py --check" in recipe.stdout


def test_the_protos_break_no_release(tree: Tree) -> None:
    done = tree.run("--check")
    assert (done.returncode, done.stderr) == (0, "")


# What is planted in errors.proto, and what the check says of it.
BREAKING = {
    "a field removed": ("  bool retryable = 4;\n", "", 'Previously present field "4" with name "retryable"'),
    "a field renumbered": ("bool retryable = 4;", "bool retryable = 94;", 'Previously present field "4"'),
    "a field retyped": ("bool retryable = 4;", "string retryable = 4;", "changed type from"),
    "a value removed": ("FAILURE_FAULT_AGENT = 1;", "FAILURE_FAULT_CLI = 1;", "FAILURE_FAULT_AGENT"),
    "a message renamed": ("message Failure {", "message Mishap {", 'Previously present message "Failure"'),
}


@pytest.mark.parametrize("name", BREAKING)
def test_a_breaking_change_fails_the_check_which_names_release_place_and_change(tree: Tree, name: str) -> None:
    old, new, said = BREAKING[name]
    tree.edit(old, new)
    if name == "a message renamed":
        for path in (tree.protos / "steprail" / "v1").glob("*.proto"):
            path.write_text(path.read_text().replace("  Failure failure", "  Mishap failure"))
    done = tree.run("--check")
    assert done.returncode == 1
    assert f"the protos break release {IMAGES[0].stem}:\n" in done.stderr
    assert "steprail/v1/errors.proto:" in done.stderr
    assert said in done.stderr


def test_the_line_of_a_change_is_named(tree: Tree) -> None:
    line = tree.edit("bool retryable = 4;", "string retryable = 4;")
    assert f"steprail/v1/errors.proto:{line}:" in tree.run("--check").stderr


def test_a_field_that_is_added_passes(tree: Tree) -> None:
    tree.add_a_field()
    done = tree.run("--check")
    assert (done.returncode, done.stderr) == (0, "")


def test_every_release_counts_not_only_the_last_one(tree: Tree) -> None:
    tree.git("init")
    tree.add_a_field()
    assert tree.run("--rewrite").returncode == 0
    shutil.copy(IMAGES[0], tree.released / "0.0.9.binpb")
    tree.edit("  // New.\n  bool planted = 90;\n", "")
    done = tree.run("--check")
    assert (done.returncode, "0.0.9" in done.stderr) == (1, False)
    assert 'Previously present field "90" with name "planted"' in done.stderr


def test_protos_that_do_not_compile_are_an_error_of_their_own(tree: Tree) -> None:
    tree.edit("bool retryable = 4;", "boolean retryable = 4;")
    done = tree.run("--check")
    assert (done.returncode, done.stdout) == (2, "")
    assert "cannot be compiled" in done.stderr
    assert "errors.proto" in done.stderr


def test_without_any_image_the_check_fails(tree: Tree) -> None:
    shutil.rmtree(tree.released)
    done = tree.run("--check")
    assert done.returncode == 2
    assert "has no image of a release" in done.stderr


def test_an_image_is_the_same_wherever_it_is_made(tree: Tree, tmp_path: Path) -> None:
    other = Tree(tmp_path / "elsewhere")
    for one in (tree, other):
        shutil.rmtree(one.released)
        done = one.run()
        assert (done.returncode, done.stderr) == (0, "")
    (made,), (again,) = sorted(tree.released.iterdir()), sorted(other.released.iterdir())
    assert made.name == again.name
    assert made.read_bytes() == again.read_bytes()
    assert str(tmp_path).encode() not in made.read_bytes()


def test_no_image_is_written_of_protos_that_break_a_release(tree: Tree) -> None:
    tree.edit("bool retryable = 4;", "string retryable = 4;")
    before = tree.images()
    done = tree.run()
    assert (done.returncode, done.stdout) == (1, "")
    assert tree.images() == before


def test_an_image_that_is_there_is_written_again_as_it_is_and_not_otherwise(tree: Tree) -> None:
    before = tree.images()
    assert tree.run().returncode == 0
    assert tree.images() == before
    tree.add_a_field()
    done = tree.run()
    assert (done.returncode, done.stdout) == (2, "")
    assert "is there and has another API: give the packages a new version" in done.stderr
    assert "--rewrite" in done.stderr
    assert tree.images() == before


def test_an_image_is_written_anew_where_that_is_wanted_and_no_tag_has_its_version(tree: Tree) -> None:
    before = tree.images()
    tree.git("init")
    tree.git("commit", "--allow-empty", "--message", "one")
    tree.git("tag", "v0.0.9")
    tree.add_a_field()
    done = tree.run("--rewrite")
    assert (done.returncode, done.stderr) == (0, "")
    assert tree.images().keys() == before.keys()
    assert tree.images() != before


@pytest.mark.parametrize("prefix", ["", "v"])
def test_an_image_whose_version_has_a_tag_is_never_written_anew(prefix: str, tree: Tree) -> None:
    before = tree.images()
    number = released.version()
    tree.git("init")
    tree.git("commit", "--allow-empty", "--message", "one")
    tree.git("tag", f"{prefix}{number}")
    assert tree.run("--rewrite").returncode == 0
    tree.add_a_field()
    done = tree.run("--rewrite")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{number} is out, by the tag {prefix}{number}" in done.stderr
    assert tree.images() == before


def test_where_no_tag_can_be_seen_no_image_is_written_anew(tree: Tree) -> None:
    before = tree.images()
    tree.add_a_field()
    done = tree.run("--rewrite")
    assert (done.returncode, done.stdout) == (2, "")
    assert "is out cannot be known: " in done.stderr
    assert tree.images() == before


@pytest.mark.parametrize("image", IMAGES, ids=lambda image: image.stem)
def test_an_image_is_self_contained_without_comments_and_in_the_form_that_is_written(image: Path) -> None:
    files = FileDescriptorSet.FromString(image.read_bytes()).file
    pool = DescriptorPool()
    for file in files:
        pool.Add(file)
    for file in files:
        pool.FindFileByName(file.name)
        assert not file.HasField("source_code_info")
    assert "steprail/v1/runs.proto" in {file.name for file in files}
    buf = Path(sys.executable).with_name("buf")
    again = subprocess.run(
        [buf, "build", image, "--exclude-source-info", "-o", "-"], capture_output=True, timeout=50, check=True
    )
    assert again.stdout == image.read_bytes()
