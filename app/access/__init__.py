"""Access on a running node: the rights of callers, and how passwords and tokens of an OIDC issuer identify them."""
