"""The compiled core: twins of the functions that every entry passes through (:mod:`bkclient._core` tells which, and when)."""
