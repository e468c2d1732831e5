"""Where ledgers are registered: one seam (:mod:`bkclient.metadata.base`), several stores."""
