"""What the repository holds speaks of no particular machine and of no package registry."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Written so that no pattern matches its own text.
PATTERNS = {
    "a path of a particular machine": r"(?<![\w.$}/-])/(?:work|root|Users/\w+|opt/wheels)/|\.pyen[v]\b",
    "the host of a package registry": (
        r"\b(?:pypi\.org|pypi\.python\.org|pythonhosted\.org|registry\.npmjs|registry\.yarnpkg|proxy\.golang\.org"
        r"|sum\.golang\.org|repo1?\.maven|deb\.debian\.org|test\.pypi)"
    ),
    "a package index as an option": r"--(?:extra-)?index-ur[l]|--find-link[s]|--trusted-hos[t]",
    "an address in an npm lock": r'"resolve[d]":\s*"http',
}


def repository_files() -> list[Path]:
    """List the files that are tracked, or would be if everything were added now."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def findings(text: str) -> list[str]:
    """Say what a text gives away, with the line."""
    return [
        f"line {number}: {what}: {line.strip()[:100]}"
        for number, line in enumerate(text.splitlines(), start=1)
        for what, pattern in PATTERNS.items()
        if re.search(pattern, line)
    ]


def test_no_file_names_a_machine_or_a_registry() -> None:
    texts = {path: path.read_text(errors="replace") for path in repository_files()}
    assert ROOT / "pyproject.toml" in texts
    found = {str(path.relative_to(ROOT)): lines for path, text in texts.items() if (lines := findings(text))}
    assert found == {}


@pytest.mark.parametrize(
    "parts",
    [
        ("/", "work/main/x"),
        ("cwd = '/", "root/project'"),
        ("/", "Users/someone/code"),
        ("https://", "pypi", ".org/simple"),
        ("https://files.", "pythonhosted", ".org/packages/x.whl"),
        ('  "resol', 'ved": "https://registry.example/x.tgz"'),
        ("pip install --index", "-url x"),
    ],
)
def test_a_planted_address_is_noticed(parts: tuple[str, ...]) -> None:
    assert len(findings(f"good\n{''.join(parts)}\n")) >= 1


def test_ordinary_paths_pass() -> None:
    # The names are put in, so that other checks of the tree do not take this line for what it allows.
    lookalikes = "/srv/{0}/x ./{0}/x $HOME/{0}/x src/{1}/x".format("work", "root")
    assert findings(f"{lookalikes} /home/me/project /tmp/x /var/lib/steprail") == []


def test_each_distribution_carries_the_same_licence() -> None:
    assert (ROOT / "LICENSE").read_bytes() == (ROOT / "clients" / "python" / "LICENSE").read_bytes()
