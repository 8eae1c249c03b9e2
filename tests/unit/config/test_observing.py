"""The keys of the side port, of the labels of metrics and of contents in the log."""

from __future__ import annotations

import pytest
from tests.unit.config.conftest import Loader

from steprail_daemon.config.load import ConfigError


@pytest.mark.parametrize("address", ["", "127.0.0.1:9464", "127.0.0.1:0", "localhost:80", "0.0.0.0:9464", "[::1]:9464"])
def test_the_side_port_is_an_address_of_tcp_or_none(loader: Loader, address: str) -> None:
    assert loader.load(f'[server]\nhttp = "{address}"').config.server.http == address


@pytest.mark.parametrize("address", ["9464", "127.0.0.1", "127.0.0.1:70000", "unix:/run/x.sock", "example.com:9464"])
def test_what_is_no_such_address_is_refused_with_the_key(loader: Loader, address: str) -> None:
    with pytest.raises(ConfigError, match=r"server\.http: .*; accepted: an IP address"):
        loader.load(f'[server]\nhttp = "{address}"')


def test_by_default_it_is_loopback_and_no_contents_are_logged(loader: Loader) -> None:
    config = loader.load().config
    assert config.server.http.startswith("127.0.0.1:")
    assert config.logging.content is False
    assert config.metrics.label_keys == ()


def test_a_flag_is_true_or_false_in_the_file_and_a_word_in_the_environment(loader: Loader) -> None:
    assert loader.load("[logging]\ncontent = true").config.logging.content is True
    with pytest.raises(
        ConfigError, match=r'logging\.content: "yes" is neither true nor false; accepted: true or false'
    ):
        loader.load('[logging]\ncontent = "yes"')
    loader.environ["STEPRAIL_LOGGING__CONTENT"] = "True"
    assert loader.load().config.logging.content is True


def test_labels_that_would_become_the_same_label_of_a_metric_are_refused(loader: Loader) -> None:
    assert loader.load('[metrics]\nlabel_keys = ["team", "cost-centre"]').config.metrics.label_keys[1] == "cost-centre"
    with pytest.raises(ConfigError, match=r"metrics\.label_keys: two of them differ"):
        loader.load('[metrics]\nlabel_keys = ["cost-centre", "cost.centre"]')
