"""What devices publish of themselves."""
