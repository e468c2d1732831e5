"""Trust between a client and its bookies: TLS (:mod:`~bkclient.security.tls`) and identities (:mod:`~bkclient.security.auth`)."""
