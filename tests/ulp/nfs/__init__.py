"""Tests of NFS without a device: the server and the client over TCP and over memory."""
