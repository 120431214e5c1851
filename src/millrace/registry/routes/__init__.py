"""Routes of the registry: one file for each part of the API. They translate, and own nothing."""
