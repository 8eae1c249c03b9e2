"""The command `steprail`.

`main` is its entry and finds the commands, one file each in `commands`. What several of them share: `problems` (errors
that are expected), `options` (flags), `configuration` (what is configured, the address), `output` (lines, tables,
JSON), `stdout` and `stdin` (output that cannot be written, input that is no text), `client` (a call to the daemon),
`reach` (why none listens), `nearly` (ids that are nearly right), `own_daemon` (a daemon for the length of a command),
`serving` and `owner` (processes of one's own), `rehearsal` (a daemon and a scripted model in a directory of their own),
`leaving` (nothing left behind). What `doctor` looks at is in the folder of that name.

A run is put into lines by `live`, and what it does just now into words by `progress`; `follow` shows both, the words on
the last line of the terminal, which is `status_line`. What agents ask of people is put into words by `asked`, asked on
the terminal by `ask`, seen to by `attend` while a run is followed, and found by its id by `pending`. What a shell is
offered for a word that is typed is found by `offers`, and handed over by `shells`.
"""
