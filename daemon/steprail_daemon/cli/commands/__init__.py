"""The commands, one a file. Each file has its click command as `command`."""
