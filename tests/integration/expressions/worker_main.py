"""A daemon's worker reduced to expressions: evaluates over the real supervisor and tells the results in JSON lines."""

from __future__ import annotations

import asyncio
import json
import os
import sys

import anyio

from steprail_daemon.core.stops.expression_view import PermissionView
from steprail_daemon.core.stops.expressions import Evaluation, Expression, ExpressionKind
from steprail_daemon.expressions.workers import ExpressionWorkers
from steprail_daemon.supervisor import ParentLink

#: The second one compares lists of lists, some 40 million items: no machine does that within the bound.
EIGHTY = ", ".join(["x"] * 80)
SOURCES = ("tool == 'Bash'", f"[[1]{f'.map(x, [{EIGHTY}])' * 4}].all(a, a == a)", "paths.size() == 1000")
VIEW = PermissionView("Bash", "execute", "", tuple(f"/project/{'x' * 1000}{n}" for n in range(1000)), {})


def tell(**fields: object) -> None:
    os.write(1, json.dumps(fields).encode() + b"\n")


async def main(control_fd: int) -> None:
    link = ParentLink(control_fd, asyncio.get_running_loop())
    engine = ExpressionWorkers(link)
    problems = await engine.check([Expression("cel", "tool = 'x'", ExpressionKind.PERMISSION_RULE)])
    tell(problems=[str(problem) for problem in problems], processes=link.processes)
    for _ in range(2):
        results = await engine.evaluate(Evaluation(VIEW, SOURCES))
        tell(results=[[result.outcome.name, result.text] for result in results], processes=link.processes)
    if "--stay" in sys.argv:
        await anyio.sleep_forever()
    await engine.close()
    tell(processes=link.processes)


anyio.run(main, int(sys.argv[sys.argv.index("--control-fd") + 1]), backend="asyncio")
