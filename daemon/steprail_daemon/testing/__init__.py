"""Public test kits: conformance of stores and drivers, playbook, fake clock."""
