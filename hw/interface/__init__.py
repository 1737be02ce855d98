"""The one description of what host and device share: registers, queue entries, error causes."""
