"""What every test shares."""

import os
from collections.abc import AsyncIterator

import pytest
from hypothesis import settings

# No deadline: a shared machine stalls for reasons that are not the code's. "steady" tries the same examples on every
# run, so that a red run is about the change at hand; "search" looks for new ones: HYPOTHESIS_PROFILE=search make test.
settings.register_profile("steady", deadline=None, derandomize=True)
settings.register_profile("search", deadline=None, max_examples=2_000)
# "full" is "steady" with as many interleavings of the run's state machine as a release is held to.
settings.register_profile("full", deadline=None, derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """asyncio alone, since grpc.aio runs on no other loop; of the session, so that fixtures may outlive a test."""
    return "asyncio"


@pytest.fixture(scope="module")
async def one_loop() -> AsyncIterator[None]:
    """Keep one event loop for a file: gRPC tells a loop that was closed of calls that were left (grpc/grpc#42357)."""
    yield  # noqa: PT022 - as long as this has not ended, the loop lives
