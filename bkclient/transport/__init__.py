"""How requests reach bookies: one seam (:mod:`bkclient.transport.base`), several transports."""
