"""The ordered registry of the kinds of stop rules."""

from __future__ import annotations

from typing import Final

from steprail_daemon.core.stops.all_of import ALL_OF
from steprail_daemon.core.stops.any_of import ANY_OF
from steprail_daemon.core.stops.base import ExpressionRuleKind, GroupRuleKind, RuleKind
from steprail_daemon.core.stops.cost import COST
from steprail_daemon.core.stops.duration import DURATION
from steprail_daemon.core.stops.expression import EXPRESSION
from steprail_daemon.core.stops.finish_reason import FINISH_REASON
from steprail_daemon.core.stops.none_of import NONE_OF
from steprail_daemon.core.stops.repetition import REPETITION
from steprail_daemon.core.stops.step_count import STEP_COUNT
from steprail_daemon.core.stops.token_usage import TOKEN_USAGE
from steprail_daemon.core.stops.tool_call import TOOL_CALL
from steprail_daemon.core.stops.tool_failures import TOOL_FAILURES

#: Every kind of rule, by the number of its kind.
KINDS: tuple[RuleKind | ExpressionRuleKind | GroupRuleKind, ...] = (
    STEP_COUNT,
    TOOL_CALL,
    TOKEN_USAGE,
    COST,
    DURATION,
    FINISH_REASON,
    TOOL_FAILURES,
    REPETITION,
    EXPRESSION,
    ANY_OF,
    ALL_OF,
    NONE_OF,
)

#: The same by the class of their parameters.
BY_CONDITION: Final = {kind.condition: kind for kind in KINDS}
