"""The checks of the driver conformance kit, by theme; `steprail_daemon.testing.driver_kit` is how they are run."""
