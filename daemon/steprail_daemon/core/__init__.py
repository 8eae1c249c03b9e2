"""The pure heart: what happens to a run, what it asks of the world, and the rules between; no I/O, no clock."""
