"""The conformance list: which test shows which normative statement."""
