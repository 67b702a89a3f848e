"""Makes a caller known by a password or by a token of an OIDC issuer."""
