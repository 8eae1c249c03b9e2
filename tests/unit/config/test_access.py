"""Identities, certificates, and the addresses that need them."""

import pytest
from tests.unit.config.conftest import Loader

from steprail_daemon.config import document
from steprail_daemon.config.access import LOCAL_NAME
from steprail_daemon.config.lines import key_lines, line_of
from steprail_daemon.config.load import changed_keys
from steprail_daemon.config.schema import Identity, Tls, children
from steprail_daemon.config.values import MAX_LABEL, MAX_LABEL_KEY, address, beyond_loopback
from steprail_daemon.engine.facade import LOCAL
from steprail_daemon.service.bounds import ID, NAME

TOKENS = '[[identities]]\nname = "payments"\ntoken_file = "tokens"\n'
TLS = '[server.tls]\ncert = "c"\nkey = "k"\n'
NOBODY = "over which no identity can prove itself; accepted: [[identities]] with a token_file, or with a certificate"
PLAIN = "can be reached from other machines and server.tls.cert is empty"


def listening(on: str, rest: str = "") -> str:
    return f'server.listen = ["{on}"]\n{rest}'


def test_identities_are_read_in_order_with_their_defaults(loader: Loader) -> None:
    text = """
[[identities]]
name = "payments"
token_file = "$HOME/tokens"
role = "operator"
tenant = "acme"
labels = { team = "payments" }

[[identities]]
name = "looker"
certificate = "looker.example"
[server.tls]
cert = "a.pem"
key = "a.key"
client_ca = "ca.pem"
"""
    loaded = loader.load(text)

    assert loaded.config.identities == (
        Identity("payments", f"{loader.environ['HOME']}/tokens", "", "operator", "acme", {"team": "payments"}),
        Identity("looker", "", "looker.example", "viewer", "default", {}),
    )
    assert loaded.config.server.tls == Tls("a.pem", "a.key", "ca.pem")
    settings = {setting.key: (setting.value, setting.source) for setting in loaded.describe()}
    assert settings["identities.1.labels"] == ('{ "team" = "payments" }', f"{loader.file}:7")
    assert settings["identities.2.name"] == ('"looker"', f"{loader.file}:10")
    assert settings["identities.2.role"] == ('"viewer"', "default")


def test_without_identities_there_are_none(loader: Loader) -> None:
    assert loader.load().config.identities == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[identities]\nname = 'x'\n", ":1: identities: it is not an array of tables; accepted: [[identities]] before"),
        ("identities = [1]\n", ":1: identities.1: it is not a table; accepted: a table of name, token_file, "),
        ("[[identities]]\ntoken_file = 't'\n", ":2: identities.1.name: it is missing; accepted: at most 63 letters"),
        (f"{TOKENS}[[identities]]\nnmae = 'x'\n", ":5: identities.2.nmae: unknown key, did you mean name?"),
        (f"{TOKENS}[[identities]]\nname = 'a b'\n", ':5: identities.2.name: "a b" is no name; accepted: at most 63'),
        (
            f"{TOKENS}role = 'boss'\n",
            ':4: identities.1.role: "boss" is none of them; accepted: viewer, operator, admin',
        ),
        (f"{TOKENS}labels = {{ a = 1 }}\n", ":4: identities.1.labels: 1 is not a string; accepted: a table of strings"),
        (f"{TOKENS}labels = {{ '' = 'b' }}\n", ':4: identities.1.labels: the key "" has 0 bytes; accepted: '),
        (f"{TOKENS}[identities.labels]\na = 2\n", ":4: identities.1.labels: 2 is not a string"),
    ],
)
def test_what_is_wrong_with_an_identity_is_named_with_its_place(text: str, said: str, loader: Loader) -> None:
    assert any(said in problem for problem in loader.problems(text)), loader.problems(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[identities]]\nname = 'x'\n", "identities.1.token_file: it is empty, as is certificate; accepted: at least"),
        (f"{TOKENS}{TOKENS}", ":5: identities.2.name: identities.1 has this name too; accepted: each once"),
        ("[[identities]]\nname = 'local'\ntoken_file = 't'\n", ":2: identities.1.name: local is who calls over a Unix"),
        (
            "[[identities]]\nname = 'x'\ncertificate = 'x'\n",
            ":3: identities.1.certificate: it is set and server.tls.client_ca is empty, so that no client is asked for",
        ),
        ("server.tls.cert = 'c'\n", ":1: server.tls.cert: it is set and server.tls.key is empty; accepted: both"),
        ("server.tls.key = 'k'\n", ":1: server.tls.key: it is set and server.tls.cert is empty; accepted: both"),
        ("server.tls.client_ca = 'a'\n", ":1: server.tls.client_ca: it is set and server.tls.cert is empty; accepted:"),
        (listening("127.0.0.1:7443"), f":1: server.listen: 127.0.0.1:7443 is TCP, {NOBODY}"),
        (listening("127.0.0.1:7443", TLS), f":1: server.listen: 127.0.0.1:7443 is TCP, {NOBODY}"),
        (listening("[::1]:7443"), f":1: server.listen: [::1]:7443 is TCP, {NOBODY}"),
        (listening("0.0.0.0:7443", TOKENS), f":1: server.listen: 0.0.0.0:7443 {PLAIN}"),
        (listening("[::]:7443", TOKENS), f":1: server.listen: [::]:7443 {PLAIN}"),
        (listening("192.0.2.1:7443", TOKENS), f":1: server.listen: 192.0.2.1:7443 {PLAIN}"),
        (listening("0.0.0.0:7443", TLS), f":1: server.listen: 0.0.0.0:7443 is TCP, {NOBODY}"),
    ],
)
def test_doors_that_are_open_by_mistake_are_refused_at_start(text: str, said: str, loader: Loader) -> None:
    assert any(said in problem for problem in loader.problems(text)), loader.problems(text)


def test_two_identities_cannot_have_one_certificate(loader: Loader) -> None:
    entries = "".join(f"[[identities]]\nname = '{name}'\ncertificate = 'x'\n" for name in "ab")

    assert loader.problems(f"{TLS}client_ca = 'a'\n{entries}") == [
        "steprail.toml:10: identities.2.certificate: identities.1 has this one too; accepted: each once"
    ]


@pytest.mark.parametrize(
    "text",
    [
        listening("127.0.0.1:7443", TOKENS),
        listening("localhost:7443", TOKENS),
        listening("127.255.255.254:7443", TOKENS),
        listening("[::1]:7443", TOKENS),
        listening("0.0.0.0:7443", TOKENS + TLS),
        listening("0.0.0.0:7443", f"{TLS}client_ca = 'a'\n[[identities]]\nname = 'x'\ncertificate = 'x.example'\n"),
    ],
)
def test_doors_with_a_lock_are_accepted(text: str, loader: Loader) -> None:
    assert loader.load(text).config.server.listen[0].endswith(":7443")


@pytest.mark.parametrize(
    ("value", "beyond"),
    [
        ("unix:/run/x.sock", False),
        ("127.0.0.1:1", False),
        ("127.9.9.9:1", False),
        ("localhost:1", False),
        ("[::1]:1", False),
        ("0.0.0.0:1", True),
        ("[::]:1", True),
        ("10.0.0.1:65535", True),
        ("[::ffff:127.0.0.1]:1", True),
    ],
)
def test_it_is_known_whether_an_address_goes_beyond_loopback(value: str, beyond: bool) -> None:
    assert beyond_loopback(address().read(value)) is beyond


def test_lines_of_entries_are_found_one_by_one() -> None:
    text = "[[a]]\nx = 1\n[[a]]\nx = 2\n[a.b]\ny = 3\n[[a.c]]\nz = 4\n[[a.c]]\nz = 5\n[d]\nx = 6\n"
    lines = key_lines(text)

    assert [line_of(path, lines) for path in (("a", "1", "x"), ("a", "2", "x"), ("a", "2", "b", "y"))] == [2, 4, 6]
    assert [line_of(("a", "2", "c", number, "z"), lines) for number in "12"] == [8, 10]
    assert line_of(("d", "x"), lines) == 12
    assert line_of(("a", "2", "role"), lines) == 3


def test_every_key_of_an_identity_is_on_the_page_and_in_the_sample() -> None:
    page, sample = document.page(), document.sample()

    assert "### `[[identities]]`" in page
    assert "\n#[[identities]]\n" in sample
    for name in children(Identity):
        assert f"| `{name}` |" in page
        assert f"\n#{name} = " in sample
    assert "| `name` | required |" in page


def test_the_keys_that_changed_are_told(loader: Loader) -> None:
    before = loader.load(f"{TOKENS}[limits]\nmax_steps = 7\n")
    after = loader.load(f"{TOKENS.replace('tokens', 'other')}{TOKENS.replace('payments', 'second')}")

    new = [f"identities.2.{name}" for name in children(Identity)]
    assert changed_keys(before, after) == sorted(["identities.1.token_file", *new, "limits.max_steps"])
    assert changed_keys(after, after) == []


def test_the_bounds_and_names_are_those_of_the_service() -> None:
    assert LOCAL.name == LOCAL_NAME
    assert (MAX_LABEL_KEY, MAX_LABEL) == (ID, NAME)
