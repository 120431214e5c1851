"""Tests. An own package, since some libraries install a package of this name too."""
