"""`python -m locality`."""

from locality.cli import main

main()
