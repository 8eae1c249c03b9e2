"""Every registered driver does what the daemon promises, with an agent that is a real process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.conformance.rigs.fake_claude import fake
from tests.conformance.rigs.scripted import autohand, scripted

from steprail_daemon.drivers.registry import DRIVERS
from steprail_daemon.testing.driver_kit import (
    Check,
    MakeRig,
    Parentage,
    checks_for,
    conform,
    parentage,
    unchecked,
)

RIGS: dict[str, MakeRig] = {"autohand": autohand, "claude": fake, "scripted": scripted}


@pytest.fixture(scope="module")
async def parents() -> AsyncIterator[Parentage]:
    async with parentage() as started:
        yield started


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("driver", "check"),
    [pytest.param(driver, check, id=f"{driver}-{check.name}") for driver in RIGS for check in checks_for(driver)],
)
async def test_the_driver_conforms(driver: str, check: Check, parents: Parentage, tmp_path: Path) -> None:
    await conform(check, RIGS[driver], parents, tmp_path)


def test_every_registered_driver_is_checked() -> None:
    assert RIGS.keys() == DRIVERS.keys()


def test_every_capability_is_shown_by_a_check_or_its_lack_by_a_refusal() -> None:
    assert unchecked() == set()
