"""What `steprail doctor` looks at.

A check is a function, plain or of a coroutine, that is given the case and tells findings. One module has the checks of
one theme and lists them in `CHECKS`, in the order in which they are made. To add a check, write it there. A plain one
may block; one of a coroutine looks at files by `looks` only.
`examination` makes them all. What only one kind of agent needs stands by its driver: how it shows a login in `logins`,
how its gate is tried in `trials`.

No check changes anything outside of a temporary directory, and each is bounded in time.
"""
