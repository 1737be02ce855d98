"""What Sphinx needs to make the manual of this repository; docs/conf.py names it."""
