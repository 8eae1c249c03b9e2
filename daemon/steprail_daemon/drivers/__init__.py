"""One driver for each CLI protocol: a pure codec and a launch plan."""
