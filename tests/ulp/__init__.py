"""Upper layer protocols."""
