"""The command `steprail`.

`main` is its entry and finds the commands, one file each in `commands`. What several of them share: `problems` (errors
that are expected), `options` (flags), `configuration` (what is configured, the address), `output` (lines, tables,
JSON), `stdout` (output that cannot be written), `client` (a call to the daemon), `live` (a run as it happens),
`own_daemon` (a daemon for the length of a run), `serving` and `owner` (processes of one's own), `rehearsal` (a daemon
and a scripted model in a directory of their own), `leaving` (nothing left behind). What `doctor` looks at is in the
folder of that name. What agents ask of people is put into words by `asked`, asked on the terminal by `ask`, seen to by
`attend` while a run is followed, and found by its id by `pending`.
"""
