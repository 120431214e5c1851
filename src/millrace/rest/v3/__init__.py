"""Version 3 of the API: resources of the cluster with links between them, and streams of records."""
