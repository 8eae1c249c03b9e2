"""What a reload takes up, what it leaves, and what it says."""

from collections.abc import Callable
from pathlib import Path

import pytest

from steprail_daemon.access import open_entrance
from steprail_daemon.config.load import LoadedConfig, load_config
from steprail_daemon.config.schema import Config
from steprail_daemon.reload import Part, Reload
from steprail_daemon.service.tokens import CredentialsUnusable

USER = 1000


class Files:
    """A configuration and the tokens that it names."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.file = directory / "steprail.toml"
        self.write("")

    def write(self, text: str) -> None:
        self.file.write_text(text)

    def tokens(self, name: str, content: str = "a-token-of-somebody") -> str:
        path = self.directory / name
        path.write_text(content)
        path.chmod(0o600)
        return f"[[identities]]\nname = '{name}'\ntoken_file = '{path}'\n"

    def load(self) -> LoadedConfig:
        environ = {"XDG_RUNTIME_DIR": str(self.directory), "HOME": str(self.directory)}
        return load_config({}, environ, path=self.file, uid=USER)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Files:
    monkeypatch.chdir(tmp_path)
    caplog.set_level("INFO")
    return Files(tmp_path)


def reload_of(files: Files) -> tuple[Callable[[], None], Callable[[], set[str]]]:
    """Give a reload, and what tells the names that are let in by a token."""
    loaded = files.load()
    entrance = open_entrance(loaded.config)
    return Reload(loaded, files.load, entrance.parts()), lambda: entrance.access.names


def test_identities_come_and_go(files: Files, caplog: pytest.LogCaptureFixture) -> None:
    files.write(files.tokens("one"))
    reload, names = reload_of(files)

    files.write(files.tokens("one") + files.tokens("two", "another-token-of-somebody"))
    reload()
    assert names() == {"one", "two"}
    assert "reload: 2 identities and their tokens" in caplog.messages

    files.write("")
    reload()
    assert names() == set()
    assert not any("needs a restart" in message for message in caplog.messages)


def test_what_needs_a_restart_is_said_each_time_until_it_was_restarted(
    files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    reload, _ = reload_of(files)
    files.write("[limits]\nmax_steps = 7\n[logging]\nlevel = 'error'\n" + files.tokens("one"))

    for _ in range(2):
        caplog.clear()
        reload()
        assert caplog.messages == [
            "reload: 1 identities and their tokens",
            "reload: no certificates, TCP is not encrypted",
            "reload: changed, and needs a restart: limits.max_steps, logging.level",
        ]


def test_a_configuration_that_cannot_be_used_changes_nothing(files: Files, caplog: pytest.LogCaptureFixture) -> None:
    files.write(files.tokens("one"))
    reload, names = reload_of(files)
    files.write(files.tokens("two") + "role = 'boss'\n")

    reload()

    assert names() == {"one"}
    (said,) = caplog.messages
    assert said.startswith("reload: the configuration cannot be used, nothing was changed: ")
    assert 'identities.1.role: "boss" is none of them' in said


def test_tokens_that_cannot_be_used_leave_the_identities_as_they_were(
    files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    files.write(files.tokens("one"))
    reload, names = reload_of(files)
    files.write(files.tokens("one") + files.tokens("two", "short"))

    reload()

    assert names() == {"one"}
    assert any(message.startswith("reload: kept as it was: identities.2.token_file: ") for message in caplog.messages)


def test_one_part_that_cannot_does_not_hold_up_the_others(files: Files, caplog: pytest.LogCaptureFixture) -> None:
    done: list[Config] = []

    def refuse(_: Config) -> str:
        raise CredentialsUnusable("broken")

    def take_up(config: Config) -> str:
        done.append(config)
        return "limits"

    loaded = files.load()
    files.write("limits.max_steps = 7\n")

    Reload(loaded, files.load, [Part("", refuse), Part("limits.", take_up)])()

    assert [config.limits.max_steps for config in done] == [7]
    assert caplog.messages == ["reload: kept as it was: broken", "reload: limits"]
