"""The command `steprail`.

`main` is its entry and finds the commands, one file each in `commands`. What several of them share: `problems` (errors
that are expected), `options` (flags), `rules` (stop rules as they are typed), `configuration` (what is configured, the
address), `output` (lines, tables, JSON), `stdout` and `stdin` (output that cannot be written, input that is no text),
`nearly` (ids that are nearly right), `ending` (what `stop` and `abort` do), `state_lock` (who uses a state directory).

A daemon is called by `call`, which finds it and turns every end into a sentence and a status: `client` is what is asked
of it, `connection` how the Python client does that, `reach` why none listens, `own_daemon` a daemon for the length of a
command. Processes of one's own are started and ended by `serving` and `owner`, those of others waited for by
`processes`; `rehearsal` is a daemon and a scripted model in a directory of their own, which `demonstration` plays in;
`leaving` leaves nothing behind. What `doctor` looks at is in the folder of that name.

A run is put into lines by `live`, and what it does just now into words by `progress`; `follow` shows both, the words on
the last line of the terminal, which is `status_line`. What agents ask of people is put into words by `asked`, asked on
the terminal by `ask`, seen to by `attend` while a run is followed, and found by its id by `pending`. What a shell is
offered for a word that is typed is found by `offers`, and handed over by `shells`.
"""
