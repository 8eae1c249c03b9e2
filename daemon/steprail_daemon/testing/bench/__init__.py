"""Measures the daemon against what the machine could do at best, both in one run; see `docs/performance.md`.

Every row compares a **subject**, which is the real daemon, with a **limit**, which is the least that any program of its
kind has to do: read and parse, echo, commit, ping-pong. Subject and limit take turns, so that whatever else the machine
does hits both, and what is compared are medians over the rounds.
"""
