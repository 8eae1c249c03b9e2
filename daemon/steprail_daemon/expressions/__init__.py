"""Rules in CEL, behind the core's `RuleEngine`: checked and evaluated in a process of their own, within bounds.

Two sides, which share nothing but the messages in `messages/` and the framing in `frames`:

- The daemon's: `workers.ExpressionWorkers` (the engine), `client` (one worker process), `encode` (core's views to
  protobuf), `ports` (what it needs of the world). CEL is never loaded there.
- The worker's: `worker` (the process), `compiler` (source to program), `guard` (what a program may hold, and how
  absence is made to be noticed).

**Why a process of its own.** CEL ends always, but not soon: a rule of 2 KiB can ask for hours of comparisons or for
gigabytes. cel-cpp cannot be interrupted and holds the GIL. So the worker evaluates in a child that it forks once CEL is
loaded: a CPU timer and a limit of address space end that child, never the worker, and the next child is there some
milliseconds later. What was being evaluated then is UNKNOWN.

**Absence.** An unset wrapper field reads as null in CEL, and `null == "length"` is false, `null != "length"` true:
answers made of what nobody knows. So the guard rewrites each read of a field that can be absent to one that ends in an
error where it is; CEL's own logic then does the rest (`absent || true` is true). `has(x)`, and a comparison with the
literal `null`, ask for absence and are left as they are.
"""
