"""Prints the lowest releases that pyproject.toml allows users, as a constraints file for pip."""

from __future__ import annotations

from pathlib import Path

import tomli
from packaging.requirements import Requirement

USERS = ("text", "plots", "tables", "data", "corpus", "test")  # extras

text = (Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8")
project = tomli.loads(text)["project"]
extras = project["optional-dependencies"]
for line in sum((extras[name] for name in USERS), project["dependencies"]):
    requirement = Requirement(line)
    for specifier in requirement.specifier:
        if specifier.operator == ">=":
            print(f"{requirement.name}=={specifier.version}")
