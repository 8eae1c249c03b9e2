"""Makes `python -m steprail_daemon.cli` the same as `steprail`."""

from steprail_daemon.cli.main import main

main()
