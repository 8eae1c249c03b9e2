"""Messages as plain objects."""

import json

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from steprail import plain
from steprail.v1 import decisions_pb2, events_pb2, runs_pb2, sessions_pb2


def test_a_message_becomes_an_object_with_the_proto_field_names() -> None:
    run = runs_pb2.Run(
        run_id="run_1",
        state=events_pb2.RUN_STATE_STOPPED,
        step_count=3,
        create_time=Timestamp(seconds=1),
    )
    assert json.loads(json.dumps(plain.to_plain(run))) == {
        "run_id": "run_1",
        "state": "RUN_STATE_STOPPED",
        "step_count": "3",
        "create_time": "1970-01-01T00:00:01Z",
    }


@pytest.mark.parametrize("name", ["ask", "accept_edits", "read_only", "bypass"])
def test_a_permission_mode_has_its_name_of_the_configuration(name: str) -> None:
    assert sessions_pb2.PermissionMode.Name(plain.permission_mode(name)) == f"PERMISSION_MODE_{name.upper()}"


def test_no_permission_mode_is_the_agents_own_and_a_wrong_one_is_refused() -> None:
    assert plain.permission_mode("") == sessions_pb2.PERMISSION_MODE_UNSPECIFIED
    with pytest.raises(ValueError, match="PERMISSION_MODE_NONSENSE"):
        plain.permission_mode("nonsense")


def test_actions_and_deciders() -> None:
    assert plain.action(go_on=True) == decisions_pb2.DECISION_ACTION_CONTINUE
    assert plain.action(go_on=False) == decisions_pb2.DECISION_ACTION_STOP
    assert plain.decider(asks=True) == decisions_pb2.Decider(mode=decisions_pb2.DECIDER_MODE_CLIENT)
    assert plain.decider(asks=False).mode == decisions_pb2.DECIDER_MODE_NO_DECIDER
