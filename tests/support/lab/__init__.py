"""Helpers that tests of simlab share: models, tasks, disks and the command line."""
