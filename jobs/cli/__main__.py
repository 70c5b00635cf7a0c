"""`python -m jobs.cli`: the command line, for a program of ours that starts it as a process."""

from jobs.cli import main

main()
