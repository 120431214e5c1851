"""Principals, SASL, ACLs and quotas."""
