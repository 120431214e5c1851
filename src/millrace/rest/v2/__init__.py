"""Version 2 of the API: topics and their metadata, producing, consumer instances."""
