"""The detail placer: moves the cells of slow paths between placing and routing (README.md)."""
