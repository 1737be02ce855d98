"""Tools of development, none of them in the wheel."""
