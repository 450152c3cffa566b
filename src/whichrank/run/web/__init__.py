"""The live job as a page: read-only, for people with the address, on this host unless asked otherwise."""
