"""Stop rules in a few words."""

from __future__ import annotations

from steprail.v1 import rules_pb2


def steps(at_least: int, *, rule_id: str = "") -> rules_pb2.StopRule:
    """Give the rule that stops once so many steps of the run are complete."""
    return rules_pb2.StopRule(id=rule_id, step_count=rules_pb2.StepCountRule(at_least=at_least))
