"""PrivKV, PrivKVM, PrivKVM+ and KVUE: mechanisms that draw one key, and their rounds."""
