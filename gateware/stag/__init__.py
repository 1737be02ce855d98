"""The STag table: which memory a peer or a work request may touch."""
