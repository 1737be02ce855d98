"""`stagecoach ip`: networks of devices, their neighbours and connections, and ping."""
