"""``python -m wsfast`` prints what is installed, what was built and what is used."""

from wsfast._config import show_config

show_config()
