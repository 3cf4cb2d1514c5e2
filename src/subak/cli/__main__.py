"""`python -m subak.cli`: the same as `subak`."""

from subak.cli import main

main()
