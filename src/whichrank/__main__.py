"""`python -m whichrank`."""

from whichrank.cli.main import main

main()
