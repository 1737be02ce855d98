"""What holds for all tests: the conformance list knows which rows they name."""

pytest_plugins = ["tests.conformance.plugin"]
