"""What the tests of the configuration share."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from steprail_daemon.config.load import ConfigError, LoadedConfig, load_config

USER = 1000


class Loader:
    """Loads a file with this text, as a user whose directories lie in a temporary one."""

    def __init__(self, directory: Path) -> None:
        self.file = directory / "steprail.toml"
        self.environ = {"XDG_RUNTIME_DIR": str(directory / "runtime"), "HOME": str(directory)}

    def load(
        self, text: str = "", *, environ: Mapping[str, str] | None = None, flags: Mapping[str, str] | None = None
    ) -> LoadedConfig:
        self.file.write_text(text)
        return load_config(flags or {}, {**self.environ, **(environ or {})}, path=self.file, uid=USER)

    def problems(
        self, text: str = "", *, environ: Mapping[str, str] | None = None, flags: Mapping[str, str] | None = None
    ) -> list[str]:
        """Give what is wrong, without the directory in the file's name."""
        with pytest.raises(ConfigError) as caught:
            self.load(text, environ=environ, flags=flags)
        return [str(problem).replace(f"{self.file.parent}/", "") for problem in caught.value.problems]


@pytest.fixture
def loader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Loader:
    monkeypatch.chdir(tmp_path)
    return Loader(tmp_path)


LoadProblems = Callable[..., list[str]]


@pytest.fixture
def problems(loader: Loader) -> LoadProblems:
    return loader.problems
