"""The RDMAP receiver: checks each segment, then places its payload and delivers its message."""
