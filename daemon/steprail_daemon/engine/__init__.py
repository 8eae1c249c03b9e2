"""The one interpreter: events in, commands of the core turned into effects."""
