"""TLS for client connections: contexts, certificates, and a transport that is used as a plain socket is used."""
