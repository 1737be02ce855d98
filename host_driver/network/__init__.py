"""Connections of a device with a network of its own: ARP, IPv4, ICMP, and TCP's open and close.

The device's engine has a connection while it is established; all else is frames here.
"""
