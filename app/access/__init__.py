"""Who may do what on a running node, and what makes a caller known: passwords, and tokens of an OIDC issuer."""
