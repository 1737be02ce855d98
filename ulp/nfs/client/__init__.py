"""The client: procedures as calls, files by path, copies of files and trees."""
